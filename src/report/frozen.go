package report

// frozen is metrics [lo, hi) in which the first layers of the chain were frozen.
type frozen struct{ lo, hi, layers int }

// frozen returns when layers were frozen, as the changes of the model tell.
func (r Run) frozen() (list []frozen) {
	for _, e := range r.Events {
		layers, ok := frozenBy(e)
		if !ok {
			continue
		}
		at := r.index(e.Step)
		if n := len(list); n > 0 {
			list[n-1].hi = min(list[n-1].hi, at)
		}
		if layers > 0 {
			list = append(list, frozen{at, len(r.Metrics), layers})
		}
	}
	return list
}

// frozenChart returns how many layers were frozen over steps, nil if none ever was.
func (r Run) frozenChart(list []frozen) *chart {
	if len(list) == 0 {
		return nil
	}
	n := &curve{Style: "line", Held: true}
	x, y := make([]float64, len(r.Metrics)), make([]float64, len(r.Metrics))
	for i, m := range r.Metrics {
		x[i] = float64(m.Step)
	}
	for _, f := range list {
		for i := f.lo; i < f.hi; i++ {
			y[i] = float64(f.layers)
		}
	}
	n.thin(x, y)
	return &chart{Title: "frozen layers", Unit: "layers", About: "from the first on, of the chain", FromZero: true, Curves: []*curve{n}}
}
