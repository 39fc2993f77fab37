package freeze

import "math"

// dissimilarity returns the similarity-preserving loss between two lists of b rows each
// (Tung & Mori 2019): how differently they say which rows are alike,
//
//	1/b² · ‖G_A/|G_A| - G_B/|G_B|‖²,  G_X = X·Xᵀ
//
// with every row of G divided by its norm; 0 for no rows, at most 4/b. Sums are in float64
// and in one order. Rows are sequences, all states of one behind each other.
func dissimilarity(a, b [][]float32) float64 {
	if len(a) == 0 {
		return 0
	}
	g, h, sum := gram(a), gram(b), 0.0
	for i := range g {
		for j := range g[i] {
			d := g[i][j] - h[i][j]
			sum += d * d
		}
	}
	return sum / float64(len(a)*len(a))
}

// gram returns the products of all pairs of rows, each row of them of norm 1, or 0.
func gram(rows [][]float32) [][]float64 {
	g := make([][]float64, len(rows))
	for i := range g {
		g[i] = make([]float64, len(rows))
		for j := range i + 1 {
			sum := 0.0
			for k, x := range rows[i] {
				sum += float64(x) * float64(rows[j][k])
			}
			g[i][j], g[j][i] = sum, sum
		}
	}
	for _, row := range g {
		norm := 0.0
		for _, x := range row {
			norm += x * x
		}
		if norm = math.Sqrt(norm); norm == 0 {
			continue
		}
		for j := range row {
			row[j] /= norm
		}
	}
	return g
}
