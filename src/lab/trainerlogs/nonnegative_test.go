package trainerlogs

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// distance returns |a·x - b|.
func distance(a *mat.Dense, b *mat.VecDense, x []float64) float64 {
	var r mat.VecDense
	r.MulVec(a, mat.NewVecDense(len(x), x))
	r.SubVec(&r, b)
	return mat.Norm(&r, 2)
}

// best returns the least |a·x - b| with x >= 0, by the least squares of all sets of free elements.
func best(a *mat.Dense, b *mat.VecDense, columns int) float64 {
	least := mat.Norm(b, 2)
	for set := 1; set < 1<<columns; set++ {
		free := make([]bool, columns)
		var rows []int
		for j := range free {
			if free[j] = set>>j&1 == 1; free[j] {
				rows = append(rows, j)
			}
		}
		if n, _ := a.Dims(); len(rows) > n {
			continue
		}
		x := leastSquares(a, b, free)
		feasible := true
		for _, y := range x {
			feasible = feasible && y >= 0
		}
		if feasible {
			least = min(least, distance(a, b, x))
		}
	}
	return least
}

func TestNonNegativeIsTheBestOfAllActiveSets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	clamped := 0
	for range 2000 {
		rows, columns := 1+rnd.IntN(8), 1+rnd.IntN(5)
		a, b := mat.NewDense(rows, columns, nil), mat.NewVecDense(rows, nil)
		for i := range rows {
			for j := range columns {
				a.Set(i, j, float64(rnd.IntN(4))) // small integers: columns are often dependent
			}
			b.SetVec(i, rnd.NormFloat64()+1)
		}
		x := nonNegative(a, b)
		for _, y := range x {
			if !(y >= 0) {
				t.Fatalf("x %v", x)
			}
			if y == 0 {
				clamped++
			}
		}
		if got, want := distance(a, b, x), best(a, b, columns); math.Abs(got-want) > 1e-7*(1+want) {
			t.Fatalf("%v\n%v: |a·x-b| %v, want %v (x %v)", mat.Formatted(a), b.RawVector().Data, got, want, x)
		}
	}
	if clamped < 100 {
		t.Errorf("%d elements at their bound: the cases are too easy", clamped)
	}
}

func TestNullSpace(t *testing.T) {
	for _, c := range []struct {
		name string
		rows [][]float64
		want [][]float64
	}{
		{"E, t and L on three stages", [][]float64{{1, 4, 0}, {0, 4, 0}, {0, 4, 1}}, nil},
		{"on two stages", [][]float64{{1, 4, 0}, {0, 4, 1}}, [][]float64{{1, -0.25, 1}}},
		{"on one", [][]float64{{1, 8, 1}}, [][]float64{{-8, 1, 0}, {-1, 0, 1}}},
	} {
		got := nullSpace(c.rows, 3)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			for j := range got[i] {
				if got[i][j] != c.want[i][j] {
					t.Errorf("%s: %v, want %v", c.name, got, c.want)
				}
			}
		}
	}
}
