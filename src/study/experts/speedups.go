package experts

// Speedups are what a case comes to. A balancer's row is the faster one's.
type Speedups struct {
	DynMo         float64 // layers that move over the best static cuts, with adapted capacity
	Ceiling       float64 // of that
	Equal         float64 // the same if loads were equal: what the head and the grain give
	Tutel         float64 // experts placed, as many each, over experts in their order, on static cuts
	OverTutel     float64 // DynMo's steps over Tutel's
	BothOverTutel float64
	Both          float64 // over the best static cuts
	Total         float64 // DynMo over the model with equal loads on static cuts
	Before, After float64 // bubble ratios of static cuts and of DynMo
	Overhead      float64 // of DynMo
}

// Speedups returns what the rows say.
func (t Table) Speedups() Speedups {
	static, best := make(map[Way]Row), make(map[Way]Row)
	for _, r := range t.Rows {
		if _, ok := static[r.Way]; !ok {
			static[r.Way] = r
		} else if b, ok := best[r.Way]; !ok || r.Step < b.Step {
			best[r.Way] = r
		}
	}
	base, dynmo, tutel := static[Adapted], best[Adapted], static[Placed]
	return Speedups{
		DynMo: base.Step / dynmo.Step, Ceiling: base.Ceiling, Equal: static[Equal].Step / best[Equal].Step,
		Tutel: base.Step / tutel.Step, OverTutel: tutel.Step / dynmo.Step,
		BothOverTutel: tutel.Step / best[Placed].Step, Both: base.Step / best[Placed].Step,
		Total:  static[Equal].Step / dynmo.Step,
		Before: base.Bubble, After: dynmo.Bubble, Overhead: dynmo.Overhead,
	}
}
