// Package exit is early exit: tokens leave at layers between blocks.
package exit

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Exits says behind which blocks tokens may leave. The zero value is a chain without
// exits.
type Exits struct {
	model.Modest
	After      string  // numbers of blocks before each exit, ascending: "3,6,9"
	Confidence string  // "classifier", "saturation" or "softmax"
	Threshold  float64 // confidence above which a token leaves, at first
	Probe      float64 // share of the tokens that go on whose loss is computed here too
	Weight     float64 // of the loss of those
	Agree      bool    // classifiers learn whether the exit's likeliest token is the last layer's, once no token leaves in training
	Weighted   bool    // no token leaves in training: all have a loss at every exit and at the end
	Propagate  bool    // the state of tokens that left goes on: later blocks compute keys and values of it (see propagate.go)
}

func (Exits) Name() string       { return "exit" }
func (Exits) Phase() model.Phase { return model.BetweenBlocks }
func (Exits) Beyond() bool       { return true }
func (e Exits) Propagates() bool { return e.Propagate }
func (e Exits) Learns() bool     { return e.Agree }

// Extend adds a layer behind each of the blocks that Depths says. A block in front of an
// exit that looks for saturation is one part. Where states go on, the last layer in front
// of the head lets them go.
func (e Exits) Extend(c model.Config, chain []model.Description) (extended []model.Description) {
	depths, last := e.Depths(), 0
	for _, d := range chain {
		k := -1
		if d.Kind == model.Block {
			k = slices.Index(depths, d.Block+1)
		}
		if k >= 0 && e.Confidence == saturation && d.Form == "" {
			makers := d.Makers
			d.Form, d.Makers = "pair", []model.Maker{{New: func() model.Part { return &pair{parts: model.MakeParts(makers), hidden: c.Hidden} }}}
		}
		extended = append(extended, d)
		if k >= 0 {
			extended = append(extended, model.Description{
				Name: fmt.Sprintf("exit.%d", k), Kind: model.Exit, Block: -1, Makers: []model.Maker{{New: func() model.Part { return newExit(c, e, k, d.Block) }}},
			})
		}
		if d.Kind != model.Head {
			last = len(extended) - 1
		}
	}
	if e.Propagate {
		extended[last] = extended[last].Selecting(live)
	}
	return extended
}

// Depths returns the numbers of blocks before each exit.
func (e Exits) Depths() (list []int) {
	for depth := range strings.SplitSeq(e.After, ",") {
		if n, err := strconv.Atoi(depth); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// HeadWeight returns the share of the last layer's loss (see exit), 1 where tokens leave.
func (e Exits) HeadWeight(c model.Config) float64 { return e.weightOf(c, c.Blocks) }

// weightOf returns the weight of the loss behind the first `depth` blocks.
func (e Exits) weightOf(c model.Config, depth int) float64 {
	if !e.Weighted {
		if depth == c.Blocks {
			return 1
		}
		return e.Weight
	}
	sum := c.Blocks
	for _, depth := range e.Depths() {
		sum += depth
	}
	return float64(depth) / float64(sum)
}

// exit is a layer behind a block (Schuster et al. 2022). Tokens whose confidence is above the
// threshold leave: their loss is the exit's,
//
//	-log softmax(norm(inp)·Wᵀ)[target]
//
// with W the embedding's weights if they are tied. The others pass unchanged. The confidence is one
// of three: that of a linear classifier of inp, which learns whether the exit's likeliest token is
// right and passes no gradient to inp; the cosine between inp and the input of the block in front
// of the exit, which then comes with inp; or the largest probability.
//
// Exit and classifier also learn from tokens that go on. A share of these tokens, the probes, drawn
// by the microbatch's data, have a loss here too. It has a weight of its own, and counts as
// gradient only.
//
// The chain equals one without the exit, bit for bit, if nothing leaves and Weight is 0: then there
// are no probes.
//
// Where losses are weighted no token leaves, all are probes, and the objective of the model is
//
//	Σ_i ω_i·L_i,  ω_i = i / Σ i   over the numbers i of blocks before each exit, and all blocks
//
// with L_i the mean loss there. With an exit behind every block this is the loss of Schuster et
// al., section 3.2 (t5x contrib/calm, models.py, lines 498 to 509, aggregation_weights 1). The
// reported loss is then that of the last layer.
//
// The classifier's cross-entropy is balanced. Of n tokens p have the label 1. A token with the
// label 1 has the weight 1 - p/n, any other p/n (models.py, lines 292 to 304).
//
// A token's label is 1 if the exit's likeliest token is the last layer's (Agree; models.py,
// loss_fn_meta_cls), or else if it is the target. The last layer's stage sends its tokens before
// the backward. So all tokens must reach the last layer: where losses are weighted, and in the
// second stage (see stage2), in which no token leaves either.
//
// Departs: unless losses are weighted tokens leave in training. CALM's leave only where text is
// generated. Later tokens do not attend to them in later blocks without Propagate.
//
// Departs: while tokens leave in training the label is always the target: a token that has left has
// no likeliest token of the last layer. CALM's do not leave in training.
//
// Departs: exits have norms of their own, and where they are not tied heads; CALM's share the last
// layer's. Exits have a classifier each; CALM's share one (flaxformer,
// calm_t5/calm_architecture.py, setup_meta_cls).
type exit struct {
	model.Selection
	number, vocab int
	seed          uint64
	weight        float64 // of the loss of probes
	Exits
	norm       model.Norm
	token      *model.Param
	classifier model.Linear // absent if the confidence is another's
	forced     []int        // tokens that leave, by microbatch of all replicas (dynamic.replay); nil: confidences decide
}

func newExit(c model.Config, kind Exits, number, block int) *exit {
	at := model.Place{Layer: fmt.Sprintf("exit.%d", number), Block: block}
	e := &exit{
		Selection: model.Selection{Passed: c.Hidden}, number: number, vocab: c.Vocab, seed: c.Seed, weight: kind.weightOf(c, block+1), Exits: kind,
		norm:  c.NewNorm(at, "norm"),
		token: at.Param("head.weight", c.Vocab, c.Hidden, model.RoleDecayed, model.InitDeviation),
	}
	if c.Tied {
		e.token = model.Place{Layer: "exit", Block: -1}.Param(model.TokenTable, c.Vocab, c.Hidden, model.RoleBorrowed, model.InitDeviation)
		e.token.Weight, e.token.File = model.TokenWeight, model.TokenWeight
	}
	if e.learns() {
		e.classifier = model.Linear{W: at.Param(classifier+".weight", 2, c.Hidden, model.RoleDecayed, model.InitDeviation), B: at.Param(classifier+".bias", 2, 1, model.RolePlain, 0)}
		e.classifier.W.Apart, e.classifier.B.Apart = true, true
	}
	for _, p := range e.Params() {
		if !p.Borrowed() {
			p.File = ""
		}
	}
	return e
}

func (e *exit) Params() []*model.Param {
	list := append(e.norm.Params(), e.token)
	if e.learns() {
		list = append(list, e.classifier.W, e.classifier.B)
	}
	return list
}

func (e *exit) Tuned() []*float64 { return []*float64{&e.Threshold} }

// exitSaved is memory of the tokens that have a loss at the exit, but where it says that
// it is of all that enter.
type exitSaved struct {
	out                          tensor.Mem // of those that go on
	picked, normed, mean, rstd   tensor.Mem
	logits, targets, stats       tensor.Mem
	verdict, verdictStats, found tensor.Mem // the classifier's logits (n, 2); the labels, and before them the exit's likeliest tokens
	balanced, rows, factors      tensor.Mem // the gradient of these logits; 0, 1, …; the weights of the tokens
	judged, ones, confidence     tensor.Mem // of all that enter: the classifier's logits (n, 2); 1; statistics of a softmax
	loss, probes, classifier     tensor.Mem // losses
	counts, around               tensor.Mem // readings
}

// saved returns the layout of the memory for the given number of tokens with a loss.
func (e *exit) saved(x *model.Exec, b *model.Batch, m tensor.Mem, rows int) (s exitSaved, bytes int64) {
	c, d := x.Cut(b, m), x.Backend.DType()
	c.Tokens = b.Leaves().Tokens
	s.out = c.Rows(e.Passed, d)
	c.Tokens = rows
	s.picked, s.normed = c.Rows(e.Passed, d), c.Rows(e.Passed, d)
	s.mean, s.rstd = e.norm.Statistics(x, c)
	s.logits, s.targets, s.stats = c.Rows(e.vocab, d), c.Rows(1, tensor.I32), c.Rows(3, tensor.F64)
	if e.learns() {
		s.verdict, s.verdictStats, s.found = c.Rows(2, d), c.Rows(3, tensor.F64), c.Rows(1, tensor.I32)
		s.balanced, s.rows, s.factors = c.Rows(2, d), c.Rows(1, tensor.I32), c.Rows(1, d.Wide())
		c.Tokens = b.Queries
		s.judged, s.ones = c.Rows(2, d), c.Rows(1, tensor.I32)
	}
	c.Tokens = b.Queries
	s.confidence = c.Rows(3, tensor.F64)
	s.loss, s.probes, s.classifier = c.Take(1, tensor.F64), c.Take(1, tensor.F64), c.Take(1, tensor.F64)
	s.counts, s.around = c.Take(exitCounts, tensor.F64), c.Take(exitAround, tensor.F64)
	return s, c.Off
}

// held is the gradient of normed.
func (e *exit) held(x *model.Exec, b *model.Batch, m tensor.Mem, rows int) (dnormed tensor.Mem, bytes int64) {
	c := x.Cut(b, m)
	c.Tokens = rows
	return c.Rows(e.Passed, x.Backend.DType()), c.Off
}

func (e *exit) Memory(x *model.Exec, b *model.Batch, saved, held tensor.Mem) (tensor.Mem, int64, int64) {
	s, savedBytes := e.saved(x, b, saved, 0)
	_, heldBytes := e.held(x, b, held, 0)
	return s.out, savedBytes, heldBytes
}

func (e *exit) Traits() model.Traits {
	t := e.Selection.Traits()
	t.Feeds, t.Learns = true, e.Agree
	return t
}

func (e *exit) NewWork(x *model.Exec, room model.Room) model.Work {
	return &departure{Subset: model.NewSubset(x, room)}
}

func (e *exit) Feed(_ *model.Exec, b *model.Batch, _ tensor.Mem, _, targets []int32) {
	departureOf(b).Feed(b, targets)
}

func (e *exit) Readings() []model.Reading {
	return []model.Reading{{Name: model.Loss, Values: 1}, {Name: Counts, Values: exitCounts}, {Name: aroundCounts, Values: exitAround}}
}

func (e *exit) Reading(x *model.Exec, b *model.Batch, saved tensor.Mem, i int) tensor.Mem {
	s, _ := e.saved(x, b, saved, 0)
	return [...]tensor.Mem{s.loss, s.counts, s.around}[i]
}

// Forward waits for the confidences. The number of tokens that go on is the length of the
// message to the next stage. It waits again where tokens have a loss here, for whether their
// targets have the largest logits.
func (e *exit) Forward(x *model.Exec, b *model.Batch, saved, inp tensor.Mem) error {
	d := departureOf(b)
	if err := e.judge(x, b, saved, inp, d); err != nil {
		return err
	}
	if err := e.force(x, d); err != nil {
		return err
	}
	all := e.state(inp)
	if err := d.decide(b, e); err != nil {
		return err
	}
	s, _ := e.saved(x, b, saved, len(d.rows))
	e.move(x, b, func(some, all tensor.Mem) { x.Stream.Copy(some, all) }, s.out, all)
	if x.Text != nil {
		if d.left == 1 && x.N() == 1 {
			e.project(x, 1, s, all)
		}
		return nil
	}
	x.Stream.Zero(s.loss)
	if len(d.rows) > 0 {
		if err := e.finish(x, s, b.QueryRows(all), d); err != nil {
			return err
		}
	}
	x.Stream.Copy(s.counts, tensor.From(d.counts[:]))
	x.Stream.Copy(s.around, tensor.From(d.around[:]))
	return nil
}

// state returns the states of the tokens, or their gradient, of what enters the exit.
func (e *exit) state(inp tensor.Mem) tensor.Mem {
	if e.Confidence == saturation {
		return half(inp)
	}
	return inp
}

// project sets the logits of n tokens.
func (e *exit) project(x *model.Exec, n int, s exitSaved, inp tensor.Mem) {
	e.norm.Forward(x, n, s.normed, s.mean, s.rstd, inp)
	x.Backend.MatmulForward(x.Stream, s.logits, s.normed, e.token.W, tensor.Mem{}, n, e.Passed, e.vocab)
}

// finish does the losses of the tokens that leave, of the probes, and of the classifier:
// logits become their gradient.
func (e *exit) finish(x *model.Exec, s exitSaved, inp tensor.Mem, d *departure) error {
	n := len(d.rows)
	d.runs(func(at, first, count int) {
		x.Stream.Copy(model.RowsOf(s.picked, n, at, count), model.RowsOf(inp, d.came, first, count))
	})
	e.project(x, n, s, s.picked)
	x.Stream.Copy(s.targets, tensor.From(d.targets()))
	if e.agrees() && !x.Validates {
		x.Backend.Likeliest(x.Stream, s.found, s.logits, n, e.vocab)
		x.Stream.Copy(tensor.From(d.likeliest[:n]), s.found)
	}
	e.entropy(x, s, n, 0, d.left, s.loss, x.Scale)
	e.entropy(x, s, n, d.left, n, s.probes, x.Scale*e.weight)
	if err := d.read(x, s.stats); err != nil {
		return err
	}
	d.tally()
	if e.learns() && !e.agrees() {
		e.classify(x, s, d)
	}
	return nil
}

// entropy does the losses of tokens [lo, hi) of the n that have one. The statistics of
// those tokens lie together.
func (e *exit) entropy(x *model.Exec, s exitSaved, n, lo, hi int, loss tensor.Mem, scale float64) {
	if hi > lo {
		some := func(m tensor.Mem) tensor.Mem { return model.RowsOf(m, n, lo, hi-lo) }
		x.Backend.CrossEntropy(x.Stream, loss, some(s.stats), tensor.Mem{}, some(s.logits), some(s.targets), scale, hi-lo, e.vocab, 0)
	}
}

// BackwardInput leaves the gradient of normed in held.
func (e *exit) BackwardInput(x *model.Exec, b *model.Batch, saved, held, _, dout, din tensor.Mem) error {
	d := departureOf(b)
	n := len(d.rows)
	s, _ := e.saved(x, b, saved, n)
	dnormed, _ := e.held(x, b, held, n)
	if n > 0 {
		x.Backend.MatmulBackwardInput(x.Stream, dnormed, s.logits, e.token.W, n, e.Passed, e.vocab)
	}
	if din = e.state(din); din.IsZero() {
		return nil
	}
	x.Stream.Zero(din)
	if e.move(x, b, func(some, all tensor.Mem) { x.Stream.Copy(all, some) }, dout, din); n == 0 {
		return nil
	}
	din = b.QueryRows(din)
	dpicked := x.Scratch.Span(0, s.picked.Bytes)
	x.Stream.Zero(dpicked)
	e.norm.BackwardInput(x, n, dpicked, dnormed, s.picked, s.mean, s.rstd)
	d.runs(func(at, first, count int) {
		sum := model.RowsOf(din, d.came, first, count)
		x.Backend.Add(x.Stream, sum, sum, model.RowsOf(dpicked, n, at, count), count*e.Passed)
	})
	return nil
}

func (e *exit) BackwardWeight(x *model.Exec, b *model.Batch, saved, held, _, _ tensor.Mem) error {
	d := departureOf(b)
	n := len(d.rows)
	if n == 0 {
		return nil
	}
	s, _ := e.saved(x, b, saved, n)
	dnormed, _ := e.held(x, b, held, n)
	if !e.token.Frozen {
		x.Backend.MatmulBackwardWeight(x.Stream, e.token.G, tensor.Mem{}, s.logits, s.normed, n, e.Passed, e.vocab)
	}
	e.norm.BackwardWeight(x, n, dnormed, s.picked, s.mean, s.rstd)
	if e.learns() {
		if e.agrees() {
			d.compare()
			e.classify(x, s, d)
		}
		e.classifier.BackwardWeight(x, n, s.balanced, s.picked)
	}
	return nil
}
