package model

import (
	"errors"
	"fmt"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// CountPieces returns the number of pieces of a block (see Config.Pieces); 0: the model has none.
func (c Config) CountPieces() int {
	count, _ := c.countPieces()
	return count
}

func (c Config) countPieces() (count, places int) {
	for _, e := range c.Kinds.list() {
		if count, places = e.Pieces(c); count > 0 {
			break
		}
	}
	return count, places
}

// Holders returns, for each piece of a block, the replicas that hold it, the owner first. It returns
// nil if the model has no pieces, and an error if Config.Pieces does not fit the model.
func (c Config) Holders(block int) ([][]int, error) {
	for _, e := range c.Kinds.list() {
		if list, err := e.Holders(c, block); list != nil || err != nil {
			return list, err
		}
	}
	return nil, nil
}

// CheckPieces returns an error unless Config.Pieces fits the model and every replica has room for
// its pieces.
func (c Config) CheckPieces() error {
	count, places := c.countPieces()
	if count == 0 {
		if !c.Pieces.IsZero() {
			return errors.New("pieces of layers on replicas that share none out")
		}
		return nil
	}
	for block := range c.Blocks {
		list, err := c.Holders(block)
		if err != nil {
			return err
		}
		held := make([]int, c.Spread)
		for _, holders := range list {
			for _, replica := range holders {
				if held[replica]++; held[replica] > places {
					return fmt.Errorf("block %d: replica %d holds more than %d pieces", block, replica, places)
				}
			}
		}
	}
	return nil
}

// fullest returns this layer as replica Fullest has it, without memory. The planner takes its bytes, so
// that the plan does not depend on which pieces this replica holds now.
func (l *Layer) fullest() *Layer {
	c := l.config
	if !l.placed() || c.Replica == Fullest {
		return l
	}
	c.Replica = Fullest
	return outline(c, c.Chain()[l.ID], header{Layer: l.ID}, l.dtype)
}

// placed reports whether the layer has pieces (see Config.Pieces).
func (l *Layer) placed() bool { return l.Own() && l.config.CountPieces() > 0 }

// freezePieces freezes pieces if the parameters that all replicas have are frozen. Headers list only
// the latter.
func (l *Layer) freezePieces() {
	for _, p := range l.params {
		if l.config.CountPieces() > 0 && (p.Own || p.Copy) {
			p.Frozen = l.params[0].Frozen
		}
	}
}

// cutSums takes the memory of fixed-point sums from a cutter (see Param.Sum).
func (l *Layer) cutSums(c *Cutter) {
	for _, p := range l.params {
		if p.Exact {
			p.Sum = c.Take(kernel.FixedWords(p.Stored()), tensor.I64)
		}
	}
}

// RoundSums sets the gradients of this replica's Exact parameters from their fixed-point sums. Call it
// once per step, after the sums of other replicas' copies have been added.
func (l *Layer) RoundSums(x *Exec) {
	for _, p := range l.params {
		if p.Own && p.Exact && !p.Frozen {
			x.Backend.RoundFixed(x.Stream, p.G, p.Sum, p.Stored())
		}
	}
}
