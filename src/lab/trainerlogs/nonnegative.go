package trainerlogs

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// nonNegative returns the x >= 0 that minimises |a·x - b|. Elements of x that the equations leave open are
// 0 or any other optimal value. (Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23.)
func nonNegative(a *mat.Dense, b *mat.VecDense) []float64 {
	_, columns := a.Dims()
	x := make([]float64, columns)
	free := make([]bool, columns)
	size := mat.Norm(a, 2) * mat.Norm(b, 2)
	for range 3 * columns { // their bound on the number of steps in practice
		var rest, gradient mat.VecDense
		rest.MulVec(a, mat.NewVecDense(columns, x))
		rest.SubVec(b, &rest)
		gradient.MulVec(a.T(), &rest)
		enter := -1
		for j := range columns {
			if slope := gradient.AtVec(j); !free[j] && slope > 1e-12*size && (enter < 0 || slope > gradient.AtVec(enter)) {
				enter = j
			}
		}
		if enter < 0 {
			break
		}
		free[enter] = true
		for {
			z := leastSquares(a, b, free)
			step, leave := 1.0, -1
			for j := range columns {
				if free[j] && z[j] <= 0 {
					s := 0.0
					if x[j] > 0 {
						s = x[j] / (x[j] - z[j])
					}
					if leave < 0 || s < step {
						step, leave = s, j
					}
				}
			}
			for j := range columns {
				x[j] += step * (z[j] - x[j])
			}
			if leave < 0 {
				break
			}
			x[leave], free[leave] = 0, false
		}
	}
	return x
}

// leastSquares returns the x that minimises |a·x - b|, with 0 for elements that are not free. The columns
// of free elements are independent.
func leastSquares(a *mat.Dense, b *mat.VecDense, free []bool) []float64 {
	x := make([]float64, len(free))
	some := columnsOf(a, free)
	if some == nil {
		return x
	}
	var qr mat.QR
	qr.Factorize(some)
	var z mat.VecDense
	if err := qr.SolveVecTo(&z, false, b); err != nil && math.IsInf(qr.Cond(), 1) {
		return x
	}
	i := 0
	for j, is := range free {
		if is {
			x[j] = z.AtVec(i)
			i++
		}
	}
	return x
}

// columnsOf returns the chosen columns of a matrix; nil if there are none.
func columnsOf(a *mat.Dense, chosen []bool) *mat.Dense {
	rows, _ := a.Dims()
	var list []int
	for j, is := range chosen {
		if is {
			list = append(list, j)
		}
	}
	if list == nil {
		return nil
	}
	some := mat.NewDense(rows, len(list), nil)
	for i, j := range list {
		some.SetCol(i, mat.Col(nil, j, a))
	}
	return some
}

// nullSpace returns the combinations of columns that add up to 0 in every row, one in each result. The
// rows are numbers of layers, so elimination is exact enough: 1e-9 separates 0 from other numbers.
func nullSpace(rows [][]float64, columns int) [][]float64 {
	var pivots []int // by row of the echelon form: its column
	rest := make([][]float64, len(rows))
	for i, row := range rows {
		rest[i] = append([]float64(nil), row...)
	}
	for j := range columns {
		done := len(pivots)
		best := done
		for i := done; i < len(rest); i++ {
			if math.Abs(rest[i][j]) > math.Abs(rest[best][j]) {
				best = i
			}
		}
		if best == len(rest) || math.Abs(rest[best][j]) < 1e-9 {
			continue
		}
		rest[done], rest[best] = rest[best], rest[done]
		scale := rest[done][j]
		for c := range columns {
			rest[done][c] /= scale
		}
		for i := range rest {
			if factor := rest[i][j]; i != done && factor != 0 {
				for c := range columns {
					rest[i][c] -= factor * rest[done][c]
				}
			}
		}
		pivots = append(pivots, j)
	}
	var list [][]float64
	next := 0
	for j := range columns {
		if next < len(pivots) && pivots[next] == j {
			next++
			continue
		}
		n := make([]float64, columns)
		n[j] = 1
		for i, pivot := range pivots {
			if x := rest[i][j]; math.Abs(x) > 1e-9 {
				n[pivot] = -x
			}
		}
		list = append(list, n)
	}
	return list
}
