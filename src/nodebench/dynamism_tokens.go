package nodebench

import (
	"errors"
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/kind/exit"
	"dynmo/src/model"
	"dynmo/src/pipeline"
)

// routedCounts is the name of what a routed block counts: the tokens that are there, those
// that it takes, and more.
const routedCounts = "routed"

// exiting measures a model most of whose tokens leave early: at each of three exits a
// quarter of them; and the same where their states go on.
func (b *bench) exiting(c model.Config, rounds int) error {
	sets := []string{fmt.Sprintf("exit.after=%d,%d,%d", c.Blocks/4, c.Blocks/2, c.Blocks*3/4), "exit.share=0.75", "exit.start=0", "exit.until=1"}
	if err := b.proportional(c, rounds, "exit", 0.9, append([]string{"dynamic.kind=exit"}, sets...)...); err != nil {
		return err
	}
	return b.proportional(c, rounds, "propagate", 0, append([]string{"dynamic.kind=exit", "exit.propagate=true"}, sets...)...)
}

// proportional measures a kind whose blocks have fewer tokens, in turn with the dense
// model. With s the share of the tokens that a block has, in the mean, where one that is
// there for its keys and values only counts as a sixth: two of twelve products,
//
//	dynamism/…_proportional = (dense step - (1-s) · dense blocks) / dynamic step
//	dynamism/…_blocks_proportional = s · dense blocks / dynamic blocks
//	dynamism/…_step_saved = 1 - dynamic step / dense step
//
// in seconds: 1 is a step, and are blocks, that take as much less as tokens are fewer. The
// step has the exits, the blocks have the routers.
func (b *bench) proportional(c model.Config, rounds int, name string, reach float64, sets ...string) error {
	dense, err := b.stepper(c)
	if err != nil {
		return err
	}
	defer dense.free()
	settings, err := config.Load("", append([]string{
		fmt.Sprintf("model.blocks=%d", c.Blocks), fmt.Sprintf("model.hidden=%d", c.Hidden),
		fmt.Sprintf("model.heads=%d", c.Heads), fmt.Sprintf("model.sequence=%d", c.Sequence), fmt.Sprintf("model.tied=%v", c.Tied),
	}, sets...))
	if err != nil {
		return err
	}
	s, err := b.stepper(model.FromConfig(settings))
	if err != nil {
		return err
	}
	defer s.free()
	s.kind = dynamic.New(settings)
	for range settling { // until thresholds are where they are to be
		s.step()
	}
	var shares, steps, blocks, saved []float64
	for range 1 + rounds {
		before, after := b.span(dense.step, 1), b.span(s.step, 1)
		if err := errors.Join(dense.err, s.err); err != nil {
			return err
		}
		less := (1 - s.share) * dense.inBlocks
		shares, steps, blocks = append(shares, s.share), append(steps, (before-less)/after), append(blocks, s.share*dense.inBlocks/s.inBlocks)
		saved = append(saved, 1-after/before)
	}
	wrong := 0
	if !dense.plausible() || !s.plausible() {
		wrong = 1
	}
	b.add("dynamism/"+name+"_tokens_in_blocks", estimated(shares[1:]), "share", 0, wrong)
	b.add("dynamism/"+name+"_proportional", estimated(steps[1:]), "ratio", reach, wrong)
	b.add("dynamism/"+name+"_blocks_proportional", estimated(blocks[1:]), "ratio", 0, wrong)
	b.add("dynamism/"+name+"_step_saved", estimated(saved[1:]), "share", 0, wrong)
	return nil
}

// settling is how many steps the thresholds of exits are given.
const settling = 12

// observe notes what a step spent in blocks, and with which share of the tokens.
func (s *stepper) observe(done pipeline.Result) {
	s.inBlocks = 0
	for _, span := range done.Spans {
		if l := s.stage.Layer(span.Layer); l != nil && inBlock(l.Kind) {
			s.inBlocks += span.End - span.Start
		}
	}
	s.share = s.shareOf(done.Counts)
}

// shareOf returns the share of the tokens that a block has, the mean over the blocks; keys
// and values alone are a sixth of a token.
func (s *stepper) shareOf(counts []cost.Count) float64 {
	taken, left := make(map[int]int64), make(map[int]int64) // by layer
	for _, c := range counts {
		switch c.Name {
		case routedCounts:
			taken[c.Layer] += c.Values[1]
		case exit.Counts:
			left[c.Layer] += c.Values[1]
		}
	}
	all := int64(s.x.N())
	there, sum, blocks := all, 0.0, int64(0)
	for _, l := range s.stage.Layers {
		there -= left[l.ID]
		if !inBlock(l.Kind) {
			continue
		}
		blocks++
		if n, ok := taken[l.ID]; ok {
			sum += float64(n)
			continue
		}
		sum += float64(there)
		if s.stage.Config.Propagates() {
			sum += float64(all-there) / 6
		}
	}
	return sum / float64(all*blocks)
}

// inBlock reports whether a layer is a block or a part of one.
func inBlock(kind model.Kind) bool {
	return kind == model.Block || kind == model.Attention || kind == model.MLP
}
