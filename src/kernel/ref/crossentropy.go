package ref

import "math"

// CrossEntropy returns Σ_n -log softmax(logits)[target] over the rows of logits
// (n, v), added in row order in float64, and overwrites logits with the
// gradient of scale times that,
//
//	scale·(softmax(logits) - onehot(target))
//
// It panics if a target is outside [0, v).
func CrossEntropy[F Float](logits []F, targets []int32, scale float64, n, v int) float64 {
	var loss float64
	for i := range n {
		row, target := logits[i*v:][:v], int(targets[i])
		lse := logSumExp(row)
		loss += lse - float64(row[target])
		for j, x := range row {
			p := math.Exp(float64(x) - lse)
			if j == target {
				p--
			}
			row[j] = F(scale * p)
		}
	}
	return loss
}
