package ref

import "math"

// softmaxMerge joins the statistics of columns [first, first+v) of the logits to before (3, n),
// those of the columns to their left. The result goes to out (3, n). The columns are logits (n, v)
// here. The statistics of a row are the largest logit, Σ exp(logit - largest), and the target's
// logit, 0 if its column is further right. An empty before has no columns.
func softmaxMerge[F Float](out, before []float64, logits []F, targets []int32, n, v, first int) {
	if len(before) == 0 {
		before = make([]float64, 3*n)
		for i := range n {
			before[i] = math.Inf(-1)
		}
	}
	for i := range n {
		row := logits[i*v:][:v]
		largest := before[i]
		for _, x := range row {
			largest = max(largest, float64(x))
		}
		sum := before[n+i]
		if sum > 0 { // else before[i] is -Inf, perhaps as largest is
			sum *= math.Exp(before[i] - largest)
		}
		for _, x := range row {
			sum += math.Exp(float64(x) - largest)
		}
		at := before[2*n+i]
		if column := int(targets[i]) - first; column >= 0 && column < v {
			at = float64(row[column])
		}
		out[i], out[n+i], out[2*n+i] = largest, sum, at
	}
}

// softmaxGradient overwrites logits (n, v), the columns [first, first+v) of
// their rows, with the gradient of scale·Σ_n -log softmax(row)[target]. stats
// (3, n) is SoftmaxMerge's result for whole rows.
//
//	scale·(exp(logit - largest)/sum - onehot(target))
func softmaxGradient[F Float](logits []F, stats []float64, targets []int32, scale float64, n, v, first int) {
	for i := range n {
		for j := range v {
			p := math.Exp(float64(logits[i*v+j])-stats[i]) / stats[n+i]
			if first+j == int(targets[i]) {
				p--
			}
			logits[i*v+j] = F(scale * p)
		}
	}
}

// crossEntropy is SoftmaxMerge of the last columns, then SoftmaxGradient of
// them. It returns Σ_n -log softmax(row)[target] over whole rows, added in row
// order in float64. It panics if a target is outside [0, first+v).
func crossEntropy[F Float](out, before []float64, logits []F, targets []int32, scale float64, n, v, first int) float64 {
	for _, target := range targets {
		if target < 0 || int(target) >= first+v {
			panic("ref: a target is outside the vocabulary")
		}
	}
	softmaxMerge(out, before, logits, targets, n, v, first)
	softmaxGradient(logits, out, targets, scale, n, v, first)
	loss := 0.0
	for i := range n {
		loss += math.Log(out[n+i]) + out[i] - out[2*n+i]
	}
	return loss
}

// likeliest sets out to the column of the largest of each row of v logits, of equal ones the
// first; to 0 where none is above -Inf.
func likeliest[F Float](out []int32, logits []F, v int) {
	for i := range out {
		largest := math.Inf(-1)
		out[i] = 0
		for j, x := range logits[i*v:][:v] {
			if x := float64(x); x > largest {
				largest, out[i] = x, int32(j)
			}
		}
	}
}
