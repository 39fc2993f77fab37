package kerneltest

import (
	"math"

	"dynmo/src/kernel"
)

// layerNorm returns the four calls, on rows far from 0, as the residual stream of
// a deep model has them. The backward calls are given mean and rstd, so that
// xhat = (inp - mean)·rstd has a small relative error there.
func (of maker) layerNorm(n, c int) []example {
	r, dims := of.draw(givenSeed), kernel.Dims{N: n, C: c}
	inp := r.normal(n * c)
	for i := range inp {
		inp[i] = r.round(inp[i] + float64(i/c%5-2)*10) // row means -20 … 20
	}
	forward := kernel.Call{Op: kernel.LayerNormForward, Dims: dims}
	stats := reference(forward, values{"out": inp, "mean": make([]float64, n), "rstd": make([]float64, n),
		"inp": inp, "weight": make([]float64, c), "bias": make([]float64, c)})
	given := map[string]any{"inp": inp}
	all := []example{of.example(forward, "", given, bounded(normBounds))}
	given["mean"], given["rstd"] = single(stats["mean"]), single(stats["rstd"])
	for _, x := range []struct {
		op     kernel.Op
		bounds func(d kernel.Dims, before, want values) values
	}{
		{kernel.LayerNormBackwardInput, normInputBounds("dinp")},
		{kernel.LayerNormBackwardInputTo, normInputBounds("add")},
		{kernel.LayerNormBackwardWeight, normWeightBounds},
	} {
		all = append(all, of.example(kernel.Call{Op: x.op, Dims: dims}, "", given, bounded(x.bounds)))
	}
	return all
}

func normBounds(d kernel.Dims, x, want values) values {
	out, mean := make([]float64, d.N*d.C), make([]float64, d.N)
	for i := range d.N {
		for _, xj := range x["inp"][i*d.C:][:d.C] {
			mean[i] += math.Abs(xj) / float64(d.C)
		}
		for j := range d.C {
			out[i*d.C+j] = math.Abs(x["bias"][j]) +
				math.Abs(x["weight"][j])*want["rstd"][i]*(math.Abs(x["inp"][i*d.C+j])+mean[i])
		}
	}
	return values{"out": out, "mean": mean, "rstd": abs(want["rstd"])}
}

// xhat returns the absolute value of the normalised element (i, j).
func (x values) xhat(i, j, c int) float64 {
	return math.Abs(x["inp"][i*c+j]-x["mean"][i]) * x["rstd"][i]
}

// normInputBounds are those of dinp, which the operand that is called start is a
// term of.
func normInputBounds(start string) func(d kernel.Dims, x, want values) values {
	return func(d kernel.Dims, x, _ values) values {
		bound := abs(x[start])
		for i := range d.N {
			var g, gx float64 // means of |g| and of |g·xhat|
			for j := range d.C {
				gj := math.Abs(x["dout"][i*d.C+j] * x["weight"][j])
				g += gj / float64(d.C)
				gx += gj * x.xhat(i, j, d.C) / float64(d.C)
			}
			for j := range d.C {
				bound[i*d.C+j] += x["rstd"][i] * (math.Abs(x["dout"][i*d.C+j]*x["weight"][j]) + g + x.xhat(i, j, d.C)*gx)
			}
		}
		return values{"dinp": bound}
	}
}

func normWeightBounds(d kernel.Dims, x, _ values) values {
	dweight, dbias := abs(x["dweight"]), abs(x["dbias"])
	for i := range d.N {
		for j := range d.C {
			dweight[j] += math.Abs(x["dout"][i*d.C+j]) * x.xhat(i, j, d.C)
			dbias[j] += math.Abs(x["dout"][i*d.C+j])
		}
	}
	return values{"dweight": dweight, "dbias": dbias}
}
