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

// rmsNorm returns the four calls; the backward calls are given rstd.
func (of maker) rmsNorm(n, c int) []example {
	call := func(op kernel.Op) kernel.Call {
		return kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c}, Eps: 1e-5}
	}
	given := map[string]any{"inp": of.draw(givenSeed).normal(n * c)}
	all := []example{of.example(call(kernel.RMSNormForward), "", given, bounded(rmsBounds))}
	given["rstd"] = single(all[0].operands[1].want)
	return append(all,
		of.example(call(kernel.RMSNormBackwardInput), "", given, bounded(rmsInputBounds("dinp"))),
		of.example(call(kernel.RMSNormBackwardInputTo), "", given, bounded(rmsInputBounds("add"))),
		of.example(call(kernel.RMSNormBackwardWeight), "", given, termwise(reference)))
}

func rmsBounds(_ kernel.Dims, _, want values) values {
	return values{"out": abs(want["out"]), "rstd": abs(want["rstd"])}
}

// rmsInputBounds are normInputBounds around a mean of 0, without the mean of g.
func rmsInputBounds(start string) func(d kernel.Dims, x, want values) values {
	return func(d kernel.Dims, x, _ values) values {
		bound := abs(x[start])
		for i := range d.N {
			row, gx := x["inp"][i*d.C:][:d.C], 0.0 // mean of |g·xhat|
			g := func(j int) float64 { return math.Abs(x["dout"][i*d.C+j] * x["weight"][j]) }
			xhat := func(j int) float64 { return math.Abs(row[j]) * x["rstd"][i] }
			for j := range row {
				gx += g(j) * xhat(j) / float64(d.C)
			}
			for j := range row {
				bound[i*d.C+j] += x["rstd"][i] * (g(j) + xhat(j)*gx)
			}
		}
		return values{"dinp": bound}
	}
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
