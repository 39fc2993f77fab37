package model_test

import (
	"bytes"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
)

// copyOf restores a layer from its sections, as a migration does.
func copyOf(t *testing.T, l *model.Layer) *model.Layer {
	t.Helper()
	text, err := json.Marshal(l.Sections())
	expect.OK(t, err)
	var sections []model.Section
	expect.OK(t, json.Unmarshal(text, &sections))
	c, d, dtype := l.Place()
	to, err := model.Restore(c, sections, d, dtype)
	expect.OK(t, err)
	from := l.Sections()
	for i, s := range to.Sections() {
		if s.Name != from[i].Name || s.Bytes != from[i].Bytes {
			t.Fatalf("section %d is %s of %d bytes, was %s of %d", i, s.Name, s.Bytes, from[i].Name, from[i].Bytes)
		}
		copy(tensor.Of[byte](s.Mem), tensor.Of[byte](from[i].Mem))
	}
	return to
}

func hashOf(t *testing.T, l *model.Layer) [32]byte {
	t.Helper()
	sum, err := l.Hash()
	expect.OK(t, err)
	return sum
}

// TestRegisteredState: state that is registered with a layer counts in its hash and its bytes. It
// survives compression and comes back with Restore. The model does not know its meaning.
func TestRegisteredState(t *testing.T) {
	ch := modeltest.New(t, modeltest.Small, tensor.F32)
	l := ch.S.Layers[1]
	plain, size := hashOf(t, l), l.Bytes(ch.X)
	l.SetState("router", []byte("top 2"))
	m, err := l.AllocState("bias", 24)
	expect.OK(t, err)
	tensor.Of[float64](m)[2] = 7
	if hashOf(t, l) == plain || l.Bytes(ch.X).Static() != size.Static()+24 {
		t.Error("registered state counts neither in the hash nor in the bytes")
	}
	modeltest.Thin(t, &model.Stage{Layers: []*model.Layer{l}}, model.CSR)
	l.Freeze(func(p *model.Param) bool { return p.Name == "qkv.weight" })
	to := copyOf(t, l)
	if hashOf(t, to) != hashOf(t, l) {
		t.Error("a restored layer has another state")
	}
	text, ok := to.State("router")
	memory, also := to.State("bias")
	if !ok || !also || string(text.Text) != "top 2" || tensor.Of[float64](memory.Mem)[2] != 7 {
		t.Errorf("state %+v, %+v", text, memory)
	}
	if i := slices.IndexFunc(to.Params(), func(p *model.Param) bool { return p.Frozen }); i < 0 || to.Params()[i].Name != "qkv.weight" {
		t.Error("a restored layer forgets what is frozen")
	}
	l.SetState("router", []byte("top 1"))
	if s, _ := l.State("router"); string(s.Text) != "top 1" || hashOf(t, to) == hashOf(t, l) {
		t.Error("state is not replaced")
	}
	to.Free()
	ch.S.Free()
}

// TestRestoreRefuses: sections that do not fit together are an error, and leave no
// memory behind.
func TestRestoreRefuses(t *testing.T) {
	dev := cpu.New(device.NewWall())
	header := func(more string) model.Section {
		return model.Section{Name: model.HeaderSection, Text: []byte(`{"layer":1,` + more + `}`)}
	}
	head := model.Section{Name: model.HeaderSection, Text: []byte(`{"layer":1}`)}
	for name, c := range map[string]struct {
		sections []model.Section
		want     string
	}{
		"nothing":       {nil, "want \"header\" first"},
		"no header":     {[]model.Section{{Name: "weights"}}, "want \"header\" first"},
		"no JSON":       {[]model.Section{{Name: model.HeaderSection, Text: []byte("{")}}, "header"},
		"no such layer": {[]model.Section{{Name: model.HeaderSection, Text: []byte(`{"layer":9}`)}}, "layer 9, the chain has 4"},
		"no formats":    {[]model.Section{header(`"formats":[]`)}, "formats of 0 parameters and entries of 0, want 12"},
		"no entries":    {[]model.Section{header(`"formats":[0,0,0,0,0,0,0,0,0,0,0,0]`)}, "formats of 12 parameters and entries of 0, want 12"},
		"a norm in CSR": {[]model.Section{header(`"formats":[0,0,0,0,2,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "format 2"},
		"no format":     {[]model.Section{header(`"formats":[4,0,0,0,0,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "format 4"},
		"ragged blocks": {[]model.Section{header(`"formats":[3,0,0,0,0,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "blocks of 32 in a matrix of 18 x 6"},
		"negative":      {[]model.Section{header(`"formats":[2,0,0,0,0,0,0,0,0,0,0,0],"nnz":[-1,36,144,144,8,8,8,8,8,8,8,8]`)}, "-1 entries of a csr matrix"},
		"too many":      {[]model.Section{header(`"formats":[2,0,0,0,0,0,0,0,0,0,0,0],"nnz":[9223372036854775807,36,144,144,8,8,8,8,8,8,8,8]`)}, "9223372036854775807 entries of a csr matrix"},
		"frozen":        {[]model.Section{header(`"frozen":[12]`)}, "parameter 12 is frozen, there are 12"},
		"updates":       {[]model.Section{header(`"updates":-1`)}, "-1 updates"},
		"too short":     {[]model.Section{head, {Name: "state", Bytes: 64}, {Name: "weights", Bytes: 8}}, "weights: 8 bytes"},
	} {
		if _, err := model.Restore(modeltest.Small, c.sections, dev, tensor.F32); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if dev.Used() != 0 {
		t.Errorf("%d bytes are left behind", dev.Used())
	}
}

// TestFrozenParameters: frozen parameters have no gradient. They count neither in the norm nor in
// the exchange between replicas, and are not updated. Everything else is as if nothing were frozen.
func TestFrozenParameters(t *testing.T) {
	free, some := modeltest.New(t, modeltest.Small, tensor.F64), modeltest.New(t, modeltest.Small, tensor.F64)
	frozen := func(p *model.Param) bool {
		return p.Name == "qkv.weight" || p.Name == "qkv.bias" || p.Name == "norm2.bias" || p.Name == "norm2.weight"
	}
	l, all := some.S.Layers[1], free.S.Layers[1]
	l.Freeze(frozen)
	free.Gradients()
	some.Gradients()
	blocks, _ := l.NormBlocks(0)
	norms, out := modeltest.Alloc(t, some.X.Device, int64(blocks)*8), 0.0
	l.SquaredNorm(some.X, norms)
	reduced := int64(0)
	for _, m := range l.Reduced() {
		reduced += m.Bytes
	}
	for i, p := range l.Params() {
		g, want := tensor.Of[float64](p.G), tensor.Of[float64](all.Params()[i].G)
		for k := range g {
			if frozen(p) && g[k] != 0 || !frozen(p) && g[k] != want[k] {
				t.Fatalf("%s: gradient %v, not frozen %v", p.Name, g[k], want[k])
			}
			out += g[k] * g[k]
		}
		if frozen(p) {
			reduced += int64(l.Room(p)) * 8
		}
	}
	if got := floats.Sum(tensor.Of[float64](norms)); got < out*(1-1e-12) || got > out*(1+1e-12) {
		t.Errorf("squared norm %v, want %v", got, out)
	}
	if reduced != l.Gradient().Bytes {
		t.Errorf("frozen and exchanged gradients have %d bytes of %d", reduced, l.Gradient().Bytes)
	}
	before := make([][]byte, len(l.Params()))
	for i, p := range l.Params() {
		before[i] = bytes.Clone(tensor.Of[byte](p.W))
	}
	a := kernel.AdamW{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: 1}
	l.Update(some.X, a)
	all.Update(free.X, a)
	for i, p := range l.Params() {
		want := tensor.Of[byte](all.Params()[i].W)
		if frozen(p) {
			want = before[i]
		}
		if !bytes.Equal(tensor.Of[byte](p.W), want) {
			t.Errorf("%s: updated to something else", p.Name)
		}
	}
	l.Freeze(func(*model.Param) bool { return true })
	if l.Update(some.X, a); l.Trains() || l.Updates != 1 || l.Reduced() != nil {
		t.Errorf("a frozen layer trains: %d updates", l.Updates)
	}
}

// TestFrozenTies: what is borrowed of a frozen layer is frozen, and nothing else of
// the borrower.
func TestFrozenTies(t *testing.T) {
	c := modeltest.Small
	c.Tied, c.HeadShards = true, 2
	s := modeltest.New(t, c, tensor.F32).S
	s.Freeze(func(layer int) bool { return layer == 0 })
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			if want := l.ID == 0 || p.Weight == model.TokenWeight; p.Frozen != want {
				t.Errorf("%s %s: frozen %v, want %v", l.Name, p.Name, p.Frozen, want)
			}
		}
	}
	s.Freeze(func(int) bool { return false })
	if !s.Param(3, model.TokenWeight).Borrowed() || s.Param(3, model.TokenWeight).Frozen {
		t.Error("a layer does not thaw")
	}
}

// TestOwnParameters: parameters that each replica has for itself lie together. They are not
// exchanged, count apart in the norm, and are updated.
func TestOwnParameters(t *testing.T) {
	ch := modeltest.New(t, modeltest.Small, tensor.F64)
	d := ch.S.Layers[1].Description
	d.Makers = slices.Clone(d.Makers)
	d.Makers[1].New = func() model.Part {
		return model.OwnMLP(modeltest.Small, d.Block)
	}
	l := model.Outlined(modeltest.Small, d, model.Header{Layer: 1}, tensor.F64)
	expect.OK(t, l.Allocate(ch.X.Device))
	shared, own := 0.0, 0.0
	for i, p := range l.Params() {
		for k := range tensor.Of[float64](p.G) {
			g := float64(i + 1)
			tensor.Of[float64](p.G)[k] = g
			if p.Own {
				own += g * g
			} else {
				shared += g * g
			}
		}
	}
	n, m := l.NormBlocks(0)
	norms := modeltest.Alloc(t, ch.X.Device, int64(n+m)*8)
	l.SquaredNorm(ch.X, norms)
	got := tensor.Of[float64](norms)
	if floats.Sum(got[:n]) != shared || floats.Sum(got[n:]) != own || own == 0 {
		t.Errorf("squared norms %v, want sums of %v and %v", got, shared, own)
	}
	if r := l.Reduced(); len(r) != 1 || r[0].Bytes != int64(l.Shared())*8 {
		t.Errorf("%d pieces are exchanged, want what is shared, %d elements", len(r), l.Shared())
	}
	l.Update(ch.X, kernel.AdamW{LR: 1, Beta1: 0.9, Beta2: 0.9, Eps: 1, GradScale: 1, Decay: 1})
	for _, p := range l.Params() {
		if tensor.Of[float64](p.W)[0] == 0 {
			t.Errorf("%s is not updated", p.Name)
		}
	}
}
