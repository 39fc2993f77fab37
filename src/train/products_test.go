package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// choosy is a backend that measures different times on every rank. It refuses the choices of
// another library.
type choosy struct {
	kernel.Backend
	finds  string
	refuse bool
	chosen []string
}

func (k *choosy) Tune(device.Device, device.Stream, []kernel.Product) ([]byte, error) {
	return []byte(k.finds), nil
}

func (k *choosy) Choose(text []byte) error {
	if k.refuse && string(text) == `"stored"` {
		return errors.New("of another library")
	}
	k.chosen = append(k.chosen, string(text))
	return nil
}

func (*choosy) Fallbacks() int64 { return 0 }

// TestRanksChooseAlike: all ranks take the algorithms that rank 0 measures, or those of the
// checkpoint, even if it has none. If the checkpoint's are of another library on some rank, all
// ranks choose anew, and a note says so.
func TestRanksChooseAlike(t *testing.T) {
	for _, tc := range []struct {
		name      string
		tune      bool
		kernels   string // of the checkpoint; "": a new run
		stored    string // the choices of the run before
		refuse    bool   // rank 1 refuses the stored choices
		want      []string
		otherwise bool
	}{
		{"new", true, "", "", false, []string{`"rank 0"`}, false},
		{"new, not wanted", false, "", "", false, nil, false},
		{"resumed", false, "ref", `"stored"`, false, []string{`"stored"`}, false},
		{"resumed without", true, "ref", "", false, nil, false},
		{"resumed from other kernels", true, "cpu", "", false, []string{`"rank 0"`}, false},
		{"another library", true, "ref", `"stored"`, true, []string{`"rank 0"`}, true},
		{"another library, not wanted", false, "ref", `"stored"`, true, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			expect.OK(t, local.Run(2, func(tr comm.Transport) error {
				c := config.Default()
				c.Device.Tune = tc.tune
				k := &choosy{Backend: ref.New(tensor.F32), finds: fmt.Sprintf(`"rank %d"`, tr.Rank()), refuse: tc.refuse && tr.Rank() == 1}
				r := &Rank{Setup: Setup{Config: c, World: comm.New(tr, comm.Options{}), Device: cpu.New(device.NewWall()), Backend: k}}
				r.x = &model.Exec{Backend: k, B: 1, T: 8}
				if tc.kernels != "" {
					text, err := json.Marshal(checkpoint.NewState(checkpoint.Ranks{Kernels: tc.kernels}, nil, nil, []byte(tc.stored)))
					if err != nil {
						return err
					}
					r.from.State = text
				}
				if err := r.tune(model.FromConfig(c)); err != nil {
					return err
				}
				last := k.chosen
				if tc.refuse && tr.Rank() == 0 { // rank 0 accepted the choices that rank 1 refused
					last = last[1:]
				}
				if !slices.Equal(last, tc.want) || (r.from.Otherwise != "") != tc.otherwise {
					return fmt.Errorf("rank %d chose %q, want %q; says %q", tr.Rank(), last, tc.want, r.from.Otherwise)
				}
				if text := string(r.products); len(tc.want) == 0 && text != "" || len(tc.want) > 0 && text != tc.want[0] {
					return fmt.Errorf("rank %d keeps %q, want %q", tr.Rank(), text, tc.want)
				}
				return nil
			}))
		})
	}
}
