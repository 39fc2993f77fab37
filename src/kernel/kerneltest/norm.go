package kerneltest

import (
	"math"

	"dynmo/src/kernel"
)

// norm returns the four calls of RMSNorm or, centred, of LayerNorm. Rows are far from 0, as in the
// residual stream of a deep model. The backward calls receive mean and rstd, so that xhat = (inp -
// mean)·rstd has a small relative error there.
func (of maker) norm(n, c int, centred bool) []example {
	r, note := of.draw(givenSeed), ",rms"
	inp := r.normal(n * c)
	given := map[string]any{"inp": inp, "mean": nil, "bias": nil, "dbias": nil}
	if centred {
		for i := range inp {
			inp[i] = r.round(inp[i] + float64(i/c%5-2)*10) // row means -20 … 20
		}
		given, note = map[string]any{"inp": inp}, ""
	}
	call := func(op kernel.Op, bounds func(d kernel.Dims, before, want values) values) example {
		return of.example(kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c}, Eps: kernel.LayerNormEps}, note, given, of.bounded(bounds))
	}
	all := []example{call(kernel.NormForward, normBounds)}
	if centred {
		given["mean"] = single(all[0].operands[1].want)
	}
	given["rstd"] = single(all[0].operands[2].want)
	return append(all,
		call(kernel.NormBackwardInput, normInputBounds("dinp")),
		call(kernel.NormBackwardInputTo, normInputBounds("add")),
		call(kernel.NormBackwardWeight, normWeightBounds))
}

func normBounds(d kernel.Dims, x, want values) values {
	out, mean := make([]float64, d.N*d.C), make([]float64, d.N) // mean of absolute values, if there is a mean
	for i := range d.N {
		for _, xj := range x["inp"][i*d.C:][:d.C] {
			if want["mean"] != nil {
				mean[i] += math.Abs(xj) / float64(d.C)
			}
		}
		for j := range d.C {
			out[i*d.C+j] = math.Abs(x["weight"][j]) * want["rstd"][i] * (math.Abs(x["inp"][i*d.C+j]) + mean[i])
			if x["bias"] != nil {
				out[i*d.C+j] += math.Abs(x["bias"][j])
			}
		}
	}
	return values{"out": out, "mean": mean, "rstd": abs(want["rstd"])}
}

// xhat returns the absolute value of the normalised element (i, j).
func (x values) xhat(i, j, c int) float64 {
	mean := 0.0
	if x["mean"] != nil {
		mean = x["mean"][i]
	}
	return math.Abs(x["inp"][i*c+j]-mean) * x["rstd"][i]
}

// normInputBounds are those of dinp, which the operand that is called start is a
// term of. Without a mean there is none of g either.
func normInputBounds(start string) func(d kernel.Dims, x, want values) values {
	return func(d kernel.Dims, x, _ values) values {
		bound := abs(x[start])
		for i := range d.N {
			var g, gx float64 // means of |g| and of |g·xhat|
			for j := range d.C {
				gj := math.Abs(x["dout"][i*d.C+j] * x["weight"][j])
				if x["mean"] != nil {
					g += gj / float64(d.C)
				}
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
			if dbias != nil {
				dbias[j] += math.Abs(x["dout"][i*d.C+j])
			}
		}
	}
	return values{"dweight": dweight, "dbias": dbias}
}
