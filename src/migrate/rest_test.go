package migrate

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/model"
	"dynmo/src/partition"
)

// TestBehind is law 6 for masters and moments that are sent behind the step: after Settle each
// layer is unchanged, and nothing remains to be sent.
func TestBehind(t *testing.T) {
	for _, c := range []model.Config{shape, mixture} {
		behind(t, c)
	}
}

func behind(t *testing.T, c model.Config) {
	line := partition.Line(3)
	layouts := []partition.Owners{
		line.Owners(partition.Partition{0, 2, 5, 10}), line.Owners(partition.Partition{0, 4, 7, 10}), line.Owners(partition.Partition{0, 1, 9, 10}),
	}
	err := local.Run(3, func(tr comm.Transport) error {
		m, err := newMember(tr, c, layouts[0].Layers(tr.Rank()))
		if err != nil {
			return err
		}
		want, err := m.inventory()
		if err != nil {
			return err
		}
		for round := range 6 {
			now, next := layouts[round%3], layouts[(round+1)%3]
			p, err := Within(now, next, tr.Rank(), c)
			if err != nil {
				return err
			}
			s, rest, err := Begin(m.group, p, m.x, m.s, true)
			if err != nil {
				return err
			}
			m.s = s
			if b := rest.Moved; b.Layers != len(now.Moved(next)) || b.Behind <= 0 || b.Behind >= b.Bytes {
				return fmt.Errorf("round %d: %+v, want %d layers, and some of their bytes behind", round, b, len(now.Moved(next)))
			}
			if err := rest.Start(); err != nil {
				return err
			}
			if round%2 == 0 { // else Settle begins what is left
				err = rest.Forwarded()
			}
			if err == nil {
				err = rest.Settle()
			}
			if err == nil {
				err = rest.Settle()
			}
			if err != nil {
				return err
			}
			got, err := m.inventory()
			if err != nil {
				return err
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("round %d: a layer has another state", round)
			}
		}
		m.s.Free()
		if used := m.dev.Used(); used != 0 {
			return fmt.Errorf("%d bytes are left behind", used)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
