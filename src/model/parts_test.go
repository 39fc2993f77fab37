package model_test

import (
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"errors"
	"strings"
	"testing"
)

// probe is a part that notes the passes it does, and fails in one of them.
type probe struct {
	model.Basic
	name  string
	notes *[]string
	fails string
	names []string // of its readings
}

func (p *probe) note(pass string) error {
	*p.notes = append(*p.notes, pass+" "+p.name)
	if p.fails == pass {
		return errors.New(pass + " of " + p.name)
	}
	return nil
}

func (p *probe) Params() []*model.Param { return nil }
func (p *probe) Leaves() model.Width    { return model.Width{Values: 3} }

func (p *probe) Memory(x *model.Exec, b *model.Batch, saved, _ tensor.Mem) (tensor.Mem, int64, int64) {
	c := x.Cut(b, saved)
	return c.Rows(3, tensor.F64), c.Off, 0
}

func (p *probe) Forward(*model.Exec, *model.Batch, tensor.Mem, tensor.Mem) error { return p.note("F") }

func (p *probe) BackwardInput(*model.Exec, *model.Batch, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) error {
	return p.note("I")
}

func (p *probe) BackwardWeight(*model.Exec, *model.Batch, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) error {
	return p.note("W")
}

func (p *probe) Readings() (list []model.Reading) {
	for _, name := range p.names {
		list = append(list, model.Reading{Name: name, Values: 2})
	}
	return list
}

func (p *probe) Reading(_ *model.Exec, _ *model.Batch, saved tensor.Mem, i int) tensor.Mem {
	return saved.Span(int64(16*i), 16)
}

func (p *probe) Traits() model.Traits { return model.Traits{Talks: p.name == "second"} }

// TestParts: passes go through the parts of a layer in order, forward and back, and
// end at the first that fails; readings are found with the part that leaves them.
func TestParts(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F64).X
	for fails, want := range map[string]string{
		"":  "F first,F second,I second,I first,W second,W first",
		"F": "F first,F second,error F of second,I second,I first,W second,W first",
		"I": "F first,F second,I second,error I of second,W second,W first",
		"W": "F first,F second,I second,I first,W second,error W of second",
	} {
		var notes []string
		parts := []model.Part{&probe{name: "first", notes: &notes, names: []string{"a", model.Loss}}, &probe{name: "second", notes: &notes, fails: fails, names: []string{"b"}}}
		l := model.Outlined(modeltest.Small, model.Description{Makers: []model.Maker{{New: func() model.Part { return parts[0] }}, {New: func() model.Part { return parts[1] }}}}, model.Header{}, tensor.F64)
		sizes := l.Sizes(x)
		saved, held := model.Saved{Kept: modeltest.Alloc(t, x.Device, sizes.Kept)}, modeltest.Alloc(t, x.Device, sizes.Held)
		gradient := modeltest.Alloc(t, x.Device, l.Leaves().Bytes(x, x.N()))
		for _, err := range []error{
			l.Forward(x, &x.Full, saved, tensor.Mem{}),
			l.BackwardInput(x, &x.Full, saved, held, tensor.Mem{}, gradient, tensor.Mem{}),
			l.BackwardWeight(x, &x.Full, saved, held, tensor.Mem{}, gradient),
		} {
			if err != nil {
				for i, note := range notes { // the error behind its pass
					if note == strings.Replace(err.Error(), " of ", " ", 1) {
						notes = append(notes[:i+1], append([]string{"error " + err.Error()}, notes[i+1:]...)...)
						break
					}
				}
			}
		}
		if got := strings.Join(notes, ","); got != want {
			t.Errorf("%q fails: %s, want %s", fails, got, want)
		}
		if r := l.Readings(); len(r) != 3 || r[0].Name != "a" || r[1].Name != model.Loss || r[2].Name != "b" {
			t.Errorf("readings %v", r)
		}
		second := l.Reading(x, &x.Full, saved, 2)
		if off := uintptr(second.Ptr) - uintptr(saved.Kept.Ptr); int64(off) != sizes.Kept/2 || !l.Traits.Talks || l.Traits.Feeds {
			t.Errorf("the second part's reading is %d bytes in, want %d", off, sizes.Kept/2)
		}
	}
}

// keeper is a part whose forward wants its own Work.
type keeper struct {
	probe
	work kept
}

// kept is the Work of a keeper.
type kept struct{ model.Work }

func (k *keeper) NewWork(*model.Exec, model.Room) model.Work { return &k.work }

func (w *kept) Enter(b *model.Batch) *model.Batch {
	entered := *b
	entered.Work = w
	return &entered
}

func (k *keeper) Forward(_ *model.Exec, b *model.Batch, _, _ tensor.Mem) error {
	if b.Work != model.Work(&k.work) {
		return errors.New(k.name + " sees the Work of another part")
	}
	return nil
}

// both is a part made of parts, as a block in front of an exit by saturation.
type both struct {
	probe
	parts []model.Part
}

func (p *both) NewWork(x *model.Exec, room model.Room) model.Work {
	return model.WorkOf(x, p.parts, room)
}

func (p *both) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	for i, q := range p.parts {
		if err := q.Forward(x, b.OfPart(i), saved, inp); err != nil {
			return err
		}
	}
	return nil
}

// TestPartsOfAPart: every part sees its own Work, also within the only part of a layer.
func TestPartsOfAPart(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F64).X
	part := &both{parts: []model.Part{&keeper{probe: probe{name: "first"}}, &keeper{probe: probe{name: "second"}}}}
	l := model.Outlined(modeltest.Small, model.Description{Makers: []model.Maker{{New: func() model.Part { return part }}}}, model.Header{}, tensor.F64)
	saved := model.Saved{Kept: modeltest.Alloc(t, x.Device, l.Sizes(x).Kept)}
	if err := l.Forward(x, l.NewWork(x, &model.Heap{Device: x.Device}).Enter(&x.Full), saved, tensor.Mem{}); err != nil {
		t.Error(err)
	}
}
