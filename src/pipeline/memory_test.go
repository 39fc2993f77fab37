package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// TestPlanTakesWhatIsAccounted: a stage has allocated, to the byte, the memory of its layers and
// FixedBytes at its schedule's peaks, and two norms for each layer. With slices of the head the
// messages between slices count everywhere, so the stage may have allocated less. It may also have
// allocated less where the first layers that select tokens are not the chain's first.
func TestPlanTakesWhatIsAccounted(t *testing.T) {
	plans := []schedule.Schedule{crossing()}
	for _, tc := range []struct {
		kind           schedule.Kind
		stages, chunks int
	}{
		{schedule.KindGPipe, 4, 1},
		{schedule.Kind1F1B, 4, 1},
		{schedule.KindInterleaved, 3, 2},
		{schedule.KindInterleaved, 1, 4}, // no neighbour on another rank
		{schedule.KindZBH1, 4, 1},
		{schedule.KindZBH2, 4, 1},
		{schedule.KindZBV, 4, 2},
		{schedule.KindZBV, 1, 2}, // every neighbour on this rank
	} {
		plan, err := schedule.New(tc.kind, tc.stages, tc.chunks, 12)
		expect.OK(t, err)
		plans = append(plans, plan)
	}
	var most schedule.Peak
	for _, plan := range plans {
		for _, p := range plan.Peaks() {
			most.Between, most.Outgoing = max(most.Between, p.Between), max(most.Outgoing, p.Outgoing)
		}
		for name, c := range map[string]model.Config{
			"whole": tiny, "recomputing": recomputing(tiny, model.RecomputeBlock), "recomputing attention": recomputing(tiny, model.RecomputeAttention), "slices": thinned("", true, false, 3), "selecting": thinned("thinning", true, false, 1),
			"selecting at once": thinned("thinning at once", true, false, 1), "routing": thinned("routing", true, false, 1),
			"exits": exiting("classifier", 0.5), "exits by saturation": exiting("saturation", 0.5),
		} {
			exact := name == "whole" || strings.HasPrefix(name, "recomputing") || name == "selecting at once" || name == "routing"
			t.Run(fmt.Sprintf("%s/stages=%d/%s", plan.Kind, plan.Map.Stages, name), func(t *testing.T) {
				err := local.Run(plan.Map.Stages, func(tr comm.Transport) error {
					r, err := runner(tr, c, plan, device.NewWall(), ref.New(tensor.F32))
					if err != nil {
						return err
					}
					used := r.x.Device.Used()
					want := accounted(r.x, r.s, plan, tr.Rank())
					if used != want && exact || used > want {
						return fmt.Errorf("stage %d uses %d bytes, %d are accounted for", tr.Rank(), used, want)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	if most.Between < 2 || most.Outgoing <= schedule.LeastOutgoing {
		t.Errorf("the most of any schedule is %+v; the test needs more between the backwards, and on the way", most)
	}
}

// recomputing returns a model that computes something twice.
func recomputing(c model.Config, r model.Recompute) model.Config {
	c.Recompute = r
	return c
}

// accounted returns the bytes of a stage whose virtual stages have equal shares
// of the chain.
func accounted(x *model.Exec, s *model.Stage, plan schedule.Schedule, stage int) int64 {
	c, m := s.Config, plan.Map
	fixed := pipeline.FixedBytes(x, c)
	sum := int64(0)
	for v, p := range plan.Peaks() {
		if m.Stage(v) != stage {
			continue
		}
		sum += fixed(m, v, p).Total()
		for _, l := range s.Segment(v*c.Layers()/m.Virtual(), (v+1)*c.Layers()/m.Virtual()) {
			b := l.Bytes(x)
			shared, own := l.NormBlocks(0)
			sum += b.Static() + int64(p.InFlight)*b.Activations + int64(p.Between)*b.Held + int64(p.Recomputed)*b.Recomputed + int64(shared+own)*tensor.F64.Size()
		}
	}
	return sum
}
