// Package sample continues a text with a trained model. In come the weights of a model, from any
// file, and the tokens of a prompt. Out come the logits of the next token, and tokens chosen from
// them, one by one.
//
// The package computes on the CPU in float32, without ranks, devices or memory for gradients. A
// Session keeps the keys and values of all tokens so far. So one more token reads every weight
// once; of a mixture it reads only the token's MLPs. This is a product of a matrix and a vector,
// limited by the rate of memory. Threads share the rows of a product; the number of threads changes
// no bit. Products of many tokens, such as a prompt's, may use a kernel backend.
package sample

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/kernel"
	"dynmo/src/model"
)

// Model has the weights of a model, with matrices (out, in). Several sessions may use it, but not
// at the same time.
type Model struct {
	Config model.Config

	token, position, head []float32 // (V, C), (sequence, C) or nil if positions are rotary, (V, C)
	blocks                []block
	norm                  norm // the final norm
	team                  team
	kernels               kernel.Backend // for products of many tokens; nil: none
	mixture               mixture        // nil: blocks have one MLP
	routing               routing        // nil: blocks take all tokens
	hashing               hashing        // nil: queries see all keys
	leaving               leaving        // nil: no token leaves
	exits                 []exit
}

// block has the weights of one block: an MLP, or several and a router (MLPs, C).
type block struct {
	norm1, norm2      norm
	qkv, proj, router linear
	outer             linear    // (MLPs, MLPs) behind the router and tanh, or absent
	depths            linear    // (1, C), the router of routing, or absent
	up, down          linear    // of routing's predictor, or absent
	mlps              []mlp     // one MLP, or those of a mixture
	projections       []float32 // see hashing
}

// norm is a norm's weight and bias (C); RMSNorm has no bias.
type norm struct{ weight, bias []float32 }

// linear is a matrix (out, in) and a bias (out), which may be absent.
type linear struct{ weight, bias []float32 }

// mlp has the matrices from a token's channels to those inside and back. A gated MLP's `up` has
// twice the channels inside.
type mlp struct{ up, down linear }

// New returns the model of a shape. read returns the values of each weight, and is called on
// `threads` goroutines at once (at least one). k multiplies many tokens faster than this package
// does. It must be float32 in host memory, and may be nil. Errors are those of read, or of a model
// that this package does not know.
func New(c model.Config, threads int, k kernel.Backend, read func(model.Weight) ([]float32, error)) (*Model, error) {
	if threads < 1 {
		panic("sample: no threads")
	}
	if err := Knows(c); err != nil {
		return nil, err
	}
	m := &Model{
		Config: c, blocks: make([]block, c.Blocks), team: team(threads), kernels: k,
		mixture: model.KindOf[mixture](c), routing: model.KindOf[routing](c), hashing: model.KindOf[hashing](c), leaving: model.KindOf[leaving](c),
	}
	if m.leaving != nil {
		for _, depth := range m.leaving.Depths() {
			m.exits = append(m.exits, exit{depth: depth})
		}
	}
	places := m.places()
	weights := append(c.Weights(), c.PrivateWeights()...)
	slices.SortStableFunc(weights, func(a, b model.Weight) int { return cmp.Compare(a.Name, b.Name) }) // parameters of a layer are adjacent
	memory, errs := room(weights), make([]error, len(weights))
	m.team.share(len(weights), 1, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			place, ok := places[weights[i].Name]
			if !ok {
				panic("sample: a weight of no place")
			}
			var values []float32
			values, errs[i] = read(weights[i])
			*place = memory[i]
			copy(*place, values)
		}
	})
	if c.Tied {
		m.head = m.token
		for i := range m.exits {
			m.exits[i].head = m.token
		}
	}
	if m.hashing != nil {
		for i := range m.blocks {
			m.blocks[i].projections = m.hashing.Projections(c, i)
		}
	}
	return m, cmp.Or(errs...)
}

// Knows returns an error unless this package computes models of a shape.
func Knows(c model.Config) error {
	if known := model.SampledFamilies(); !slices.Contains(known, c.FamilyName()) {
		return fmt.Errorf("a model of family %s, want %s: sample knows no other", c.Family, strings.Join(known, " or "))
	}
	return nil
}

// places returns the variable for each weight, by the weight's name (see model.Weight).
func (m *Model) places() map[string]*[]float32 {
	places := map[string]*[]float32{
		"embedding/token.weight": &m.token, "embedding/position.weight": &m.position,
		"head/norm.weight": &m.norm.weight, "head/norm.bias": &m.norm.bias, "head/head.weight": &m.head,
	}
	at := ""
	add := func(name string, w, bias *[]float32) {
		places[at+name+".weight"], places[at+name+".bias"] = w, bias
	}
	for i := range m.exits {
		e := &m.exits[i]
		at = fmt.Sprintf("exit.%d/", i)
		add("norm", &e.norm.weight, &e.norm.bias)
		add("classifier", &e.classifier.weight, &e.classifier.bias)
		places[at+"head.weight"] = &e.head
	}
	for i := range m.blocks {
		b := &m.blocks[i]
		at = fmt.Sprintf("block.%d/", i)
		add("norm1", &b.norm1.weight, &b.norm1.bias)
		add("norm2", &b.norm2.weight, &b.norm2.bias)
		add("qkv", &b.qkv.weight, &b.qkv.bias)
		add("qv", &b.qkv.weight, &b.qkv.bias) // if keys are computed from queries
		add("proj", &b.proj.weight, &b.proj.bias)
		add("router", &b.router.weight, &b.router.bias)
		add("router.outer", &b.outer.weight, &b.outer.bias)
		add("depths.router", &b.depths.weight, &b.depths.bias)
		add("depths.predictor.up", &b.up.weight, &b.up.bias)
		add("depths.predictor.down", &b.down.weight, &b.down.bias)
		b.mlps = make([]mlp, max(1, m.Config.Shared()))
		for e := range b.mlps {
			p, of := &b.mlps[e], ""
			if m.mixture != nil {
				of = m.mixture.Place(e)
			}
			add(of+m.upward(), &p.up.weight, &p.up.bias)
			add(of+"down", &p.down.weight, &p.down.bias)
		}
	}
	return places
}

// upward returns the name of the MLP's first matrix.
func (m *Model) upward() string {
	if m.gated() {
		return "gateup"
	}
	return "up"
}

// gated reports whether MLPs are gated.
func (m *Model) gated() bool { return m.Config.Intermediate > 0 }

// inside returns the channels inside an MLP, and the output channels of its first matrix.
func (m *Model) inside() (channels, up int) {
	if m.gated() {
		return m.Config.Intermediate, 2 * m.Config.Intermediate
	}
	return 4 * m.Config.Hidden, 4 * m.Config.Hidden
}

// headed returns the channels of a head, and of a token's queries, keys and values together.
func (m *Model) headed() (size, all int) {
	size = m.Config.Hidden / m.Config.Heads
	return size, (m.Config.Heads + 2*m.Config.Keyed()) * size
}

// TokenBytes returns the bytes of weights that one more token reads. Embeddings of other tokens and
// positions do not count, nor do MLPs of a mixture that the token does not go to.
func (m *Model) TokenBytes() int64 {
	n := len(m.head) + len(m.norm.weight) + len(m.norm.bias) + m.Config.Hidden
	if m.position != nil {
		n += m.Config.Hidden
	}
	taken := 1
	if m.mixture != nil {
		taken = m.mixture.Taken()
	}
	for _, b := range m.blocks {
		for _, w := range []linear{linear(b.norm1), linear(b.norm2), b.qkv, b.proj, b.router, b.outer, b.depths} {
			n += len(w.weight) + len(w.bias)
		}
		for _, p := range b.mlps[:taken] { // all MLPs have one shape
			n += len(p.up.weight) + len(p.up.bias) + len(p.down.weight) + len(p.down.bias)
		}
	}
	return 4 * int64(n)
}
