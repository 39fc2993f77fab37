package trainerlogs

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"dynmo/src/cost"
)

// Passes of a microbatch. weight is the part of backward for weights; some logs do not tell it.
const (
	forward = iota
	backward
	weight
	passes
)

// part is layers of the model whose seconds were measured together.
type part struct {
	name    string            // for errors, such as "stage 2"
	layers  counts            // how many of each kind
	samples [passes][]float64 // seconds for one microbatch; weight may be empty
}

// measured is what a log says of all parts of the model.
type measured struct {
	parts []part
	notes []string
}

// Costs is the seconds of the layers of a model.
type Costs struct {
	Table cost.Table
	Kinds []Kind
	Notes []string // what a user should know about the measurement
}

// Kind is the seconds of the layers of one kind, for one microbatch.
type Kind struct {
	Name      string
	Layers    int
	Seconds   cost.Stage // mean over the layers
	Deviation float64    // standard error of the seconds, relative to them; NaN: not known
	Residual  float64    // root mean square of the parts with this kind: share of their seconds that the fit does not explain; NaN without a fit
	Samples   int        // measurements with layers of this kind
}

// median returns the median of some numbers and its standard error, under noise that is nearly normal with
// a few far outliers, such as an iteration that saved a checkpoint. The error of fewer than two is NaN.
func median(list []float64) (middle, deviation float64) {
	n := float64(len(list))
	sorted := slices.Sorted(slices.Values(list))
	middle = cost.Quantile(sorted, 0.5)
	if n < 2 {
		return middle, math.NaN()
	}
	for i, x := range sorted {
		sorted[i] = math.Abs(x - middle)
	}
	slices.Sort(sorted)
	// 1.4826 median absolute deviations are a standard deviation; n/(n-1) is for few samples. The
	// median of many varies by sqrt(pi/2) as much as their mean.
	return middle, 1.4826 * cost.Quantile(sorted, 0.5) * math.Sqrt(n/(n-1)*math.Pi/2/n)
}

// unknown are the kinds whose seconds a fit looks for: those that the model has. Blocks are first: where the
// layout leaves open whose the seconds are, they are those of blocks.
func unknown(all counts) []int {
	list := []int{block}
	for k, n := range all {
		if n > 0 && k != block {
			list = append(list, k)
		}
	}
	return list
}

// passFit is the fit of one pass.
type passFit struct {
	seconds  []float64 // by unknown kind
	variance []float64 // of the seconds; nil: not known
	fitted   []float64 // by part
	middle   []float64 // by part: the measured seconds
}

// fit finds the seconds of each kind of layers that explain the measured parts best. The errors of the
// parts count relative to their seconds.
func fit(m measured, s shape) (Costs, error) {
	all := s.total()
	kindsOf := unknown(all)
	parts := slices.DeleteFunc(slices.Clone(m.parts), func(p part) bool { return p.layers == counts{} }) // their seconds belong to no layer
	rows := rowsOf(parts, kindsOf)
	var list [weight]passFit
	for pass := range list {
		var err error
		if list[pass], err = fitPass(parts, pass, rows); err != nil {
			return Costs{}, err
		}
	}
	shares := weightShares(parts, kindsOf, list[backward].seconds)
	c := Costs{Notes: m.notes}
	var seconds [kinds]cost.Stage
	for j, k := range kindsOf {
		b := list[backward].seconds[j]
		seconds[k] = cost.Stage{Forward: list[forward].seconds[j], Input: b * (1 - shares[j]), Weight: b * shares[j]}
		c.Kinds = append(c.Kinds, describe(parts, list, j, k, all[k], seconds[k]))
	}
	slices.SortFunc(c.Kinds, func(a, b Kind) int { return slices.Index(names[:], a.Name) - slices.Index(names[:], b.Name) })
	if seconds[block].Seconds() == 0 {
		return c, fmt.Errorf("the best fit gives blocks 0 seconds, want the layout of the run that left the log")
	}
	c.Table = cost.Table{Clock: "wall", Layers: layersOf(all, seconds), Deviation: deviations(c.Kinds)}
	for _, n := range nullSpace(rows, len(kindsOf)) {
		combination := cost.Combination{}
		for j, x := range n {
			if x != 0 {
				combination[names[kindsOf[j]]] = x
			}
		}
		c.Table.Unseparated = append(c.Table.Unseparated, combination)
	}
	if note := doubts(parts, list, s.layout); note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c, nil
}

// rowsOf returns the numbers of layers by part and kind.
func rowsOf(parts []part, kindsOf []int) [][]float64 {
	rows := make([][]float64, len(parts))
	for i, p := range parts {
		for _, k := range kindsOf {
			rows[i] = append(rows[i], float64(p.layers[k]))
		}
	}
	return rows
}

// weightShares returns by unknown kind which share of the backward is for weights. It is that of each kind
// if the parts tell these apart, else one share for all, and a half if the log does not tell. The embedding
// has no input that wants a gradient: all its backward is for weights.
func weightShares(parts []part, kindsOf []int, backwards []float64) []float64 {
	told := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return len(p.samples[weight]) == 0 })
	common := 0.5
	if len(told) > 0 {
		of, all := 0.0, 0.0
		for _, p := range told {
			w, _ := median(p.samples[weight])
			b, _ := median(p.samples[backward])
			of, all = of+w, all+b
		}
		common = min(1, of/all)
	}
	shares := slices.Repeat([]float64{common}, len(kindsOf))
	some := slices.DeleteFunc(slices.Clone(kindsOf), func(k int) bool {
		return k == embedding && !slices.ContainsFunc(told, func(p part) bool { return p.layers[k] > 0 })
	})
	if rows := rowsOf(told, some); len(nullSpace(rows, len(some))) == 0 {
		if f, err := fitPass(told, weight, rows); err == nil {
			for i, k := range some {
				if j := slices.Index(kindsOf, k); backwards[j] > 0 {
					shares[j] = min(1, f.seconds[i]/backwards[j])
				}
			}
		}
	}
	if j := slices.Index(kindsOf, embedding); j >= 0 {
		shares[j] = 1
	}
	return shares
}

// fitPass fits one pass. rows are the numbers of layers, by part and unknown kind.
func fitPass(parts []part, pass int, rows [][]float64) (passFit, error) {
	n, columns := len(rows), len(rows[0])
	f := passFit{middle: make([]float64, n), fitted: make([]float64, n)}
	errors := make([]float64, n) // relative standard error of each part; NaN: not known
	a, b := mat.NewDense(n, columns, nil), mat.NewVecDense(n, nil)
	for i, p := range parts {
		middle, deviation := median(p.samples[pass])
		if !(middle > 0) {
			return f, fmt.Errorf("%s: %s seconds %v, want a number above 0", p.name, [passes]string{"forward", "backward", "backward-weight"}[pass], middle)
		}
		f.middle[i], errors[i] = middle, deviation/middle
		for j, x := range rows[i] {
			a.Set(i, j, x/middle)
		}
		b.SetVec(i, 1)
	}
	f.seconds = nonNegative(a, b)
	free, used := make([]bool, columns), 0
	for j, x := range f.seconds {
		if free[j] = x > 0; free[j] {
			used++
		}
	}
	squares := 0.0
	for i, row := range rows {
		for j, x := range row {
			f.fitted[i] += x * f.seconds[j]
		}
		squares += math.Pow(f.fitted[i]/f.middle[i]-1, 2)
	}
	f.variance = variances(columnsOf(a, free), free, errors, squares, n-used)
	return f, nil
}

// variances returns the variance of each unknown kind; nil if it is not known. The error of a part is the
// larger of that of its samples and of what the fit leaves unexplained: ranks may differ in speed.
func variances(a *mat.Dense, free []bool, errors []float64, squares float64, spare int) []float64 {
	if a == nil {
		return nil
	}
	n, _ := a.Dims()
	var product, inverse, effect mat.Dense
	product.Mul(a.T(), a)
	if err := inverse.Inverse(&product); err != nil {
		if _, poor := err.(mat.Condition); !poor {
			return nil
		}
	}
	effect.Mul(&inverse, a.T()) // of a relative error of each part on each kind
	unexplained := math.NaN()
	if spare > 0 {
		unexplained = math.Sqrt(squares / float64(spare))
	}
	list := make([]float64, len(free))
	row := 0
	for j, is := range free {
		if !is {
			continue
		}
		for i := range n {
			e := errors[i]
			if math.IsNaN(e) || e < unexplained {
				e = unexplained
			}
			if math.IsNaN(e) {
				return nil
			}
			list[j] += math.Pow(effect.At(row, i)*e, 2)
		}
		row++
	}
	return list
}
