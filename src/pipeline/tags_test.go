package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel/null"
	"dynmo/src/schedule"
)

// TestTagsTellMicrobatchesApart: there are more microbatches than tags; where layers select tokens
// there are even fewer tags. A schedule is executed only if messages are received in the order in
// which they are sent. Otherwise one message would be taken for another.
func TestTagsTellMicrobatchesApart(t *testing.T) {
	const most = comm.TagMicrobatches
	made := func(kind schedule.Kind, chunks, microbatches int) schedule.Schedule {
		s, err := schedule.New(kind, 1, chunks, microbatches)
		expect.OK(t, err)
		return s
	}
	swapped := func(s schedule.Schedule, a, b int) schedule.Schedule {
		list := s.Lists[0]
		list[a], list[b] = list[b], list[a]
		expect.OK(t, s.Check(func(int) int { return s.Microbatches }))
		return s
	}
	// F0 F1 I0 I1 W0 W1, then F, I and W of one after the other
	pair := func(microbatches int) schedule.Schedule {
		s := schedule.Schedule{Kind: "pair", Map: made(schedule.Kind1F1B, 1, 1).Map, Microbatches: microbatches}
		const f, i, w = schedule.F, schedule.I, schedule.W
		all := list(f, 0, f, 1, i, 0, i, 1, w, 0, w, 1)
		for m := 2; m < microbatches; m++ {
			all = append(all, list(f, m, i, m, w, m)...)
		}
		s.Lists = [][]schedule.Instr{all}
		return s
	}
	for name, c := range map[string]struct {
		plan  schedule.Schedule
		legal bool
	}{
		"few of some tokens, F descends":  {swapped(pair(comm.TagIndexes), 0, 1), true},
		"many of some tokens, F descends": {swapped(pair(comm.TagIndexes+1), 0, 1), false},
		"ascending":                       {made(schedule.Kind1F1B, 1, most+1), true},
		"few, F descends":                 {swapped(pair(most), 0, 1), true},
		"many, F descends":                {swapped(pair(most+1), 0, 1), false},
		"many, I descends":                {swapped(pair(most+1), 2, 3), false},
		"two chunks, half each":           {made(schedule.KindZBV, 2, most/2), true},
		"two chunks, one more":            {made(schedule.KindZBV, 2, most/2+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			config, want := tiny, most
			if strings.Contains(name, "some tokens") {
				config, want = config.With(extensions["thinning"]), comm.TagIndexes
			}
			err := local.Run(1, func(tr comm.Transport) error {
				clock := device.NewWall()
				_, err := runner(tr, config, c.plan, clock, null.New(clock, nil))
				return err
			})
			if c.legal && err != nil || !c.legal && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("want at most %d", want))) {
				t.Errorf("legal: %v, got %v", c.legal, err)
			}
		})
	}
}
