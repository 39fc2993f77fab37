package model_test

import (
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"math"
	"testing"
)

// TestReference: what a layer is compared with are its weights at the time, but for half
// a 127th of the largest of a row; comparing leaves everything of the layer, and what its
// backward will need, as it is; a layer that was pruned since has no reference.
func TestReference(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F32, tensor.F64} {
		ch := modeltest.New(t, modeltest.Small, d)
		ch.Loss()
		l := ch.S.Layers[1]
		if l.Refers() {
			t.Fatal("a new layer has a reference")
		}
		expect.OK(t, l.Refer(ch.X))
		slab := modeltest.Alloc(t, ch.X.Device, int64(l.All())*d.Size())
		expect.OK(t, l.Restored(slab))
		first := 0
		for _, p := range l.Params() {
			live, got := model.Wide(p.W, d), model.Wide(model.Span(slab, d, first, first+p.Stored()), d)
			count, length := p.RowLengths()
			for row := range count {
				largest := 0.0
				for i := row * length; i < (row+1)*length; i++ {
					largest = max(largest, math.Abs(live(i)))
				}
				for i := row * length; i < (row+1)*length; i++ {
					if off := math.Abs(live(i) - got(i)); off > largest/127*0.5001 {
						t.Fatalf("%s[%d]: %v, restored as %v, the largest of its row is %v", p.Name, i, live(i), got(i), largest)
					}
				}
			}
			first += l.Room(p)
		}
		before, saved := hashOf(t, l), string(tensor.Of[byte](ch.Saved[1].Kept))
		live, reference, err := l.ReferenceRows(ch.X, ch.B, ch.Saved[1], ch.Input(1), 5)
		expect.OK(t, err)
		if hashOf(t, l) != before || string(tensor.Of[byte](ch.Saved[1].Kept)) != saved {
			t.Error("comparing has changed the layer, or its activations")
		}
		if len(live) != 5 || len(reference) != 5 || len(live[0]) != modeltest.Small.Hidden {
			t.Fatalf("%d and %d rows of %d, want 5 of %d", len(live), len(reference), len(live[0]), modeltest.Small.Hidden)
		}
		same, off := 0, 0.0
		for i := range live {
			for j, x := range live[i] {
				if off = max(off, math.Abs(x-reference[i][j])); x == reference[i][j] {
					same++
				}
			}
		}
		if off > 0.01 || same == 5*modeltest.Small.Hidden {
			t.Errorf("rows differ by up to %v, %d values are equal", off, same)
		}
		to := copyOf(t, l)
		if hashOf(t, to) != before || !to.Refers() {
			t.Error("the reference does not move with the layer")
		}
		modeltest.Thin(t, &model.Stage{Layers: []*model.Layer{l}}, model.CSR)
		if l.Refers() {
			t.Error("a pruned layer still has a reference of what it was")
		}
		expect.OK(t, l.Refer(ch.X))
		if !l.Refers() {
			t.Error("a pruned layer has no new reference")
		}
		if _, _, err := l.ReferenceRows(ch.X, ch.B, ch.Saved[1], ch.Input(1), 5); err != nil {
			t.Error(err)
		}
	}
}

// TestStrangeReference: a section of that name and of another size is none.
func TestStrangeReference(t *testing.T) {
	ch := modeltest.New(t, modeltest.Small, tensor.F32)
	l := ch.S.Layers[1]
	l.SetState(model.ReferenceSection, []byte("text"))
	if l.Refers() {
		t.Error("text is taken for a reference")
	}
	_, err := l.AllocState(model.ReferenceSection, 24)
	expect.OK(t, err)
	if l.Refers() {
		t.Error("24 bytes are taken for a reference")
	}
	expect.OK(t, l.Refer(ch.X))
	if !l.Refers() {
		t.Error("no reference")
	}
}

// gpu is a device with memory of its own, as far as references can tell.
type gpu struct{ *cpu.Device }

func (gpu) Space() tensor.Space { return tensor.Device }

// TestReferenceOnTheHost: references take no memory of a GPU, and on a CPU count as the
// layer's.
func TestReferenceOnTheHost(t *testing.T) {
	for _, d := range []device.Device{cpu.New(device.NewWall()), gpu{cpu.New(device.NewWall())}} {
		s, err := model.NewStage(modeltest.Small, []int{1}, d, tensor.F32)
		expect.OK(t, err)
		l, before := s.Layers[0], d.Used()
		x := &model.Exec{Device: d, Backend: ref.New(tensor.F32), B: 1, T: modeltest.Small.Sequence}
		counted := l.Bytes(x).Static()
		for range 2 {
			expect.OK(t, l.Refer(x))
		}
		_, want := l.ReferenceSize()
		if d.Space() == tensor.Device {
			want = 0
		}
		if used, more := d.Used()-before, l.Bytes(x).Static()-counted; used != want || more != want {
			t.Errorf("%d bytes are used, %d counted, want %d", used, more, want)
		}
		if s.Free(); d.Used() != 0 {
			t.Errorf("%d bytes are left behind", d.Used())
		}
	}
}
