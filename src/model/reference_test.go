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
	"slices"
	"testing"
)

// TestReference: a layer's reference has its weights at the time, off by at most half a 127th of
// the largest weight of a row. A comparison leaves the layer, and the buffers of its backward, as
// they are. A layer that was pruned since has no reference.
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
		room := model.Heap{Device: ch.X.Device}
		left, err := l.ReferenceForward(ch.X, ch.B, &room, ch.Input(1), ch.Tokens, ch.Targets)
		expect.OK(t, err)
		if hashOf(t, l) != before || string(tensor.Of[byte](ch.Saved[1].Kept)) != saved {
			t.Error("the reference's forward has changed the layer, or its activations")
		}
		reference, err := l.Sequences(ch.X, ch.B, left)
		expect.OK(t, err)
		live, err := l.Sequences(ch.X, ch.B, l.Output(ch.X, ch.B, ch.Saved[1]))
		expect.OK(t, err)
		all := ch.X.T * modeltest.Small.Hidden
		if len(live) != ch.X.B || len(reference) != ch.X.B || len(live[0]) != all {
			t.Fatalf("%d and %d rows of %d, want %d of %d", len(live), len(reference), len(live[0]), ch.X.B, all)
		}
		same, off := 0, 0.0
		for i := range live {
			for j, x := range live[i] {
				if off = max(off, math.Abs(float64(x-reference[i][j]))); x == reference[i][j] {
					same++
				}
			}
		}
		if off > 0.01 || same == ch.X.B*all {
			t.Errorf("rows differ by up to %v, %d values are equal", off, same)
		}
		to := copyOf(t, l)
		if hashOf(t, to) != before || !to.Refers() {
			t.Error("the reference does not move with the layer")
		}
		modeltest.Thin(t, &model.Stage{Layers: []*model.Layer{l}}, model.CSR)
		if l.Refers() {
			t.Error("a pruned layer still has a reference of its dense weights")
		}
		expect.OK(t, l.Refer(ch.X))
		if !l.Refers() {
			t.Error("a pruned layer has no new reference")
		}
		if _, err := l.ReferenceForward(ch.X, ch.B, &room, ch.Input(1), ch.Tokens, ch.Targets); err != nil {
			t.Error(err)
		}
		room.Free()
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

// TestSequencesOfSome: a sequence's states are where they are in the whole sequence, 0 where a
// token is not there.
func TestSequencesOfSome(t *testing.T) {
	c := modeltest.Small
	c = c.With(&modeltest.Selecting{Rows: map[int][]int32{1: {0, 2, 7}}})
	ch := modeltest.New(t, c, tensor.F64)
	ch.Loss()
	l, b := ch.S.Layers[2], ch.Batches[2]
	left := l.Output(ch.X, b, ch.Saved[2])
	rows, err := l.Sequences(ch.X, b, left)
	expect.OK(t, err)
	states := tensor.Of[float64](left)
	for at := range ch.X.N() {
		token := slices.Index([]int{0, 2, 7}, at)
		for j := range c.Hidden {
			want := 0.0
			if token >= 0 {
				want = states[token*c.Hidden+j]
			}
			if got := float64(rows[at/ch.X.T][at%ch.X.T*c.Hidden+j]); math.Abs(got-want) > 1e-6 {
				t.Fatalf("state %d of token %d is %v, want %v", j, at, got, want)
			}
		}
	}
}
