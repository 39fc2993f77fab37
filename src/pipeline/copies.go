package pipeline

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/model"
)

// copies exchanges what copies of parameters on other replicas need: their sums go to the
// owners, and the owners' weights to them.
type copies struct {
	sums    []comm.Round
	weights exchange
}

// listCopies lists the messages of weights.
func listCopies(s *model.Stage) (c copies) {
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			for _, replica := range others(p) {
				if part := (comm.Part{Rank: replica, Mem: p.W}); p.Own {
					c.weights.sends = append(c.weights.sends, part)
				} else {
					c.weights.recvs = append(c.weights.recvs, part)
				}
			}
		}
	}
	return c
}

// others returns the replicas that a parameter's owner, or its copy, exchanges messages with.
func others(p *model.Param) []int {
	switch {
	case p.Frozen || len(p.Holders) < 2:
		return nil
	case p.Own:
		return p.Holders[1:]
	}
	return p.Holders[:1]
}

// sumCopies adds the sums of copies to the owners', and rounds these to gradients. Every replica
// sends all that it has to send before it waits: the order in which owners add changes no bit.
// Collective over the replicas.
func (r *Runner) sumCopies() error {
	c := &r.copies
	c.sums = c.sums[:0]
	for _, l := range r.s.Layers {
		for _, p := range l.Params() {
			if !p.Copy || others(p) == nil {
				continue
			}
			round, err := r.replicas.Exchange(comm.TagReduce, []comm.Part{{Rank: p.Holders[0], Mem: p.Sum}}, nil, r.ready())
			if err != nil {
				return err
			}
			c.sums = append(c.sums, round)
		}
	}
	for _, l := range r.s.Layers {
		for _, p := range l.Params() {
			if !p.Own {
				continue
			}
			for _, replica := range others(p) {
				if err := r.addCopy(p, replica); err != nil {
					return fmt.Errorf("layer %d: %s of replica %d: %w", l.ID, p.Name, replica, err)
				}
			}
		}
		l.RoundSums(r.x)
	}
	for _, round := range c.sums {
		if err := round.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// updateCopies gives copies the weights of their owners. Collective over the replicas.
func (r *Runner) updateCopies() error {
	if err := r.copies.weights.begin(r); err != nil {
		return fmt.Errorf("copies: %w", err)
	}
	if err := r.copies.weights.round.Wait(); err != nil {
		return fmt.Errorf("copies: %w", err)
	}
	return nil
}

// addCopy adds a copy's sum, which arrives in scratch memory, to that of its owner, here.
func (r *Runner) addCopy(p *model.Param, replica int) error {
	there := r.x.Scratch.Span(0, p.Sum.Bytes)
	round, err := r.replicas.Exchange(comm.TagReduce, nil, []comm.Part{{Rank: replica, Mem: there}}, r.ready())
	if err == nil {
		err = round.Wait()
	}
	if err != nil {
		return err
	}
	r.x.Backend.AddFixed(r.x.Stream, p.Sum, there, p.Stored())
	return nil
}
