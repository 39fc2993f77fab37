package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// copyOf restores a layer from its sections, as a migration does.
func copyOf(t *testing.T, l *Layer) *Layer {
	t.Helper()
	text, err := json.Marshal(l.Sections())
	must(t, err)
	var sections []Section
	must(t, json.Unmarshal(text, &sections))
	to, err := Restore(l.config, sections, l.device, l.dtype)
	must(t, err)
	from := l.Sections()
	for i, s := range to.Sections() {
		if s.Name != from[i].Name || s.Bytes != from[i].Bytes {
			t.Fatalf("section %d is %s of %d bytes, was %s of %d", i, s.Name, s.Bytes, from[i].Name, from[i].Bytes)
		}
		copy(tensor.Of[byte](s.Mem), tensor.Of[byte](from[i].Mem))
	}
	return to
}

func hashOf(t *testing.T, l *Layer) [32]byte {
	t.Helper()
	sum, err := l.Hash()
	must(t, err)
	return sum
}

// TestRegisteredState: what is registered with a layer counts in its hash and its
// bytes, stays when it is compressed, and comes back with Restore, without anybody
// who knows what it means.
func TestRegisteredState(t *testing.T) {
	ch := newChain(t, small, tensor.F32)
	l := ch.s.Layers[1]
	plain, size := hashOf(t, l), l.Bytes(ch.x)
	l.SetState("router", []byte("top 2"))
	m, err := l.AllocState("bias", 24)
	must(t, err)
	tensor.Of[float64](m)[2] = 7
	if hashOf(t, l) == plain || l.Bytes(ch.x).Static() != size.Static()+24 {
		t.Error("registered state counts neither in the hash nor in the bytes")
	}
	thin(t, &Stage{Layers: []*Layer{l}}, CSR)
	l.Freeze(func(p *Param) bool { return p.Name == "qkv.weight" })
	to := copyOf(t, l)
	if hashOf(t, to) != hashOf(t, l) {
		t.Error("a restored layer has another state")
	}
	text, ok := to.State("router")
	memory, also := to.State("bias")
	if !ok || !also || string(text.Text) != "top 2" || tensor.Of[float64](memory.Mem)[2] != 7 {
		t.Errorf("state %+v, %+v", text, memory)
	}
	if i := slices.IndexFunc(to.params, func(p *Param) bool { return p.Frozen }); i < 0 || to.params[i].Name != "qkv.weight" {
		t.Error("a restored layer forgets what is frozen")
	}
	l.SetState("router", []byte("top 1"))
	if s, _ := l.State("router"); string(s.Text) != "top 1" || hashOf(t, to) == hashOf(t, l) {
		t.Error("state is not replaced")
	}
	to.Free()
	ch.s.Free()
}

// TestRestoreRefuses: sections that do not fit together are an error, and leave no
// memory behind.
func TestRestoreRefuses(t *testing.T) {
	dev := cpu.New(device.NewWall())
	header := func(more string) Section {
		return Section{Name: headerSection, Text: []byte(`{"layer":1,` + more + `}`)}
	}
	head := Section{Name: headerSection, Text: []byte(`{"layer":1}`)}
	for name, c := range map[string]struct {
		sections []Section
		want     string
	}{
		"nothing":       {nil, "want \"header\" first"},
		"no header":     {[]Section{{Name: "weights"}}, "want \"header\" first"},
		"no JSON":       {[]Section{{Name: headerSection, Text: []byte("{")}}, "header"},
		"no such layer": {[]Section{{Name: headerSection, Text: []byte(`{"layer":9}`)}}, "layer 9, the chain has 4"},
		"no formats":    {[]Section{header(`"formats":[]`)}, "formats of 0 parameters and entries of 0, want 12"},
		"no entries":    {[]Section{header(`"formats":[0,0,0,0,0,0,0,0,0,0,0,0]`)}, "formats of 12 parameters and entries of 0, want 12"},
		"a norm in CSR": {[]Section{header(`"formats":[0,0,0,0,2,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "format 2"},
		"no format":     {[]Section{header(`"formats":[4,0,0,0,0,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "format 4"},
		"ragged blocks": {[]Section{header(`"formats":[3,0,0,0,0,0,0,0,0,0,0,0],"nnz":[108,36,144,144,8,8,8,8,8,8,8,8]`)}, "blocks of 32 in a matrix of 18 x 6"},
		"negative":      {[]Section{header(`"formats":[2,0,0,0,0,0,0,0,0,0,0,0],"nnz":[-1,36,144,144,8,8,8,8,8,8,8,8]`)}, "-1 entries of a csr matrix"},
		"too many":      {[]Section{header(`"formats":[2,0,0,0,0,0,0,0,0,0,0,0],"nnz":[9223372036854775807,36,144,144,8,8,8,8,8,8,8,8]`)}, "9223372036854775807 entries of a csr matrix"},
		"frozen":        {[]Section{header(`"frozen":[12]`)}, "parameter 12 is frozen, there are 12"},
		"updates":       {[]Section{header(`"updates":-1`)}, "-1 updates"},
		"too short":     {[]Section{head, {Name: "state", Bytes: 64}, {Name: "weights", Bytes: 8}}, "weights: 8 bytes"},
	} {
		if _, err := Restore(small, c.sections, dev, tensor.F32); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if dev.Used() != 0 {
		t.Errorf("%d bytes are left behind", dev.Used())
	}
}

// TestFrozenParameters: what is frozen has no gradient, does not count in the norm
// or in what replicas exchange, and is not updated, while all else is as if nothing
// were frozen.
func TestFrozenParameters(t *testing.T) {
	free, some := newChain(t, small, tensor.F64), newChain(t, small, tensor.F64)
	frozen := func(p *Param) bool {
		return p.Name == "qkv.weight" || p.Name == "qkv.bias" || p.Name == "norm2.bias" || p.Name == "norm2.weight"
	}
	l, all := some.s.Layers[1], free.s.Layers[1]
	l.Freeze(frozen)
	free.gradients()
	some.gradients()
	norms, out := alloc(t, some.x.Device, 16), 0.0
	l.SquaredNorm(some.x, norms)
	reduced := int64(0)
	for _, m := range l.Reduced() {
		reduced += m.Bytes
	}
	for i, p := range l.params {
		g, want := tensor.Of[float64](p.G), tensor.Of[float64](all.params[i].G)
		for k := range g {
			if frozen(p) && g[k] != 0 || !frozen(p) && g[k] != want[k] {
				t.Fatalf("%s: gradient %v, not frozen %v", p.Name, g[k], want[k])
			}
			out += g[k] * g[k]
		}
		if frozen(p) {
			reduced += int64(l.room(p)) * 8
		}
	}
	if got := tensor.Of[float64](norms)[0]; got < out*(1-1e-12) || got > out*(1+1e-12) {
		t.Errorf("squared norm %v, want %v", got, out)
	}
	if reduced != l.g.Bytes {
		t.Errorf("frozen and exchanged gradients have %d bytes of %d", reduced, l.g.Bytes)
	}
	before := make([][]byte, len(l.params))
	for i, p := range l.params {
		before[i] = bytes.Clone(tensor.Of[byte](p.W))
	}
	a := kernel.AdamW{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: 1}
	l.Update(some.x, a)
	all.Update(free.x, a)
	for i, p := range l.params {
		want := tensor.Of[byte](all.params[i].W)
		if frozen(p) {
			want = before[i]
		}
		if !bytes.Equal(tensor.Of[byte](p.W), want) {
			t.Errorf("%s: updated to something else", p.Name)
		}
	}
	l.Freeze(func(*Param) bool { return true })
	if l.Update(some.x, a); l.Trains() || l.Updates != 1 || l.Reduced() != nil {
		t.Errorf("a frozen layer trains: %d updates", l.Updates)
	}
}

// TestFrozenTies: what is borrowed of a frozen layer is frozen, and nothing else of
// the borrower.
func TestFrozenTies(t *testing.T) {
	c := small
	c.Tied, c.HeadShards = true, 2
	s := newChain(t, c, tensor.F32).s
	s.Freeze(func(layer int) bool { return layer == 0 })
	for _, l := range s.Layers {
		for _, p := range l.params {
			if want := l.ID == 0 || p.Weight == TokenWeight; p.Frozen != want {
				t.Errorf("%s %s: frozen %v, want %v", l.Name, p.Name, p.Frozen, want)
			}
		}
	}
	s.Freeze(func(int) bool { return false })
	if !s.Param(3, TokenWeight).Borrowed() || s.Param(3, TokenWeight).Frozen {
		t.Error("a layer does not thaw")
	}
}

// TestOwnParameters: parameters of which each replica has its own lie together,
// are not exchanged, count apart in the norm, and are updated.
func TestOwnParameters(t *testing.T) {
	ch := newChain(t, small, tensor.F64)
	d := ch.s.Layers[1].Description
	d.Makers = slices.Clone(d.Makers)
	d.Makers[1].New = func() Part {
		m := newMLP(small, d.Block)
		m.up.W.Own, m.up.B.Own = true, true
		return m
	}
	l := outline(small, d, header{Layer: 1}, tensor.F64)
	l.device = ch.x.Device
	must(t, l.allocate())
	shared, own := 0.0, 0.0
	for i, p := range l.params {
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
	norms := alloc(t, ch.x.Device, 16)
	l.SquaredNorm(ch.x, norms)
	if got := tensor.Of[float64](norms); got[0] != shared || got[1] != own || own == 0 {
		t.Errorf("squared norms %v, want %v and %v", got, shared, own)
	}
	if r := l.Reduced(); len(r) != 1 || r[0].Bytes != int64(l.shared)*8 {
		t.Errorf("%d pieces are exchanged, want what is shared, %d elements", len(r), l.shared)
	}
	l.Update(ch.x, kernel.AdamW{LR: 1, Beta1: 0.9, Beta2: 0.9, Eps: 1, GradScale: 1, Decay: 1})
	for _, p := range l.params {
		if tensor.Of[float64](p.W)[0] == 0 {
			t.Errorf("%s is not updated", p.Name)
		}
	}
}
