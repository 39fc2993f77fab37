package moe

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
)

// contest is the placements of experts that others publish, beside this program's.
var contest = dynamic.Contest{
	About: `Each case is a run of 48 steps of 32 blocks on 8 stages, 1F1B with 16 microbatches; 70 %
of a block's seconds are its experts'. The rows of the experts are recorded from routers of
small trained models, or made up; made-up rows are up to 20 % off their shares in every
step, so that a placement which goes by earlier steps is as far off. Every replica has one
spare place. "layers moved" and "ours" move layers too.

A figure is the seconds of a step over those of a step in which all replicas have the
same work: the mean over the steps from the eighth on, and the slowest of these. Its
inverse is the share of the ceiling that is reached: no placement is faster than even
work. Messages take no time. Behind the figure are the share of the assignments that were
dropped, and the steps after which experts or copies moved. As JSON, a figure is the
inverse.`,
	Rivals: []dynamic.NamedPlacing{
		rival("nothing", "experts lie evenly and stay", placeEven),
		rival("capacity", "the same; assignments beyond 1.25 times an expert's fair share are dropped", placeCapped),
		rival("Tutel", "the same; experts are padded to the rows of the fullest, so that nothing is dropped from\n    products of equal shapes (Hwang et al. 2023)", placePadded),
		rival("EPLB", "DeepSeek's: all spare places have copies, which share rows equally, placed anew after each step", placeEPLB),
		rival("ours, no copies", "owners move where that pays", placeOwners),
		rival("ours", "copies in spare places, and owners where that pays; blocks of 256 rows, 16 of\n    recordings, are dealt by the rows that came", placeCopies),
	},
	Cases: []dynamic.ContestCase{
		madeUpCase("zipf-0.5", 8, 8, 1.2), madeUpCase("zipf-1", 64, 8, 1.2), madeUpCase("zipf-1", 64, 32, 1.2), madeUpCase("zipf-1", 256, 64, 1.2),
		madeUpCase("hot-rank", 64, 8, 0), madeUpCase("rotating", 64, 8, 0), madeUpCase("burst", 64, 8, 0),
		recordedCase("mixtral-32-aux", 8), recordedCase("mixtral-24-aux-other", 8), recordedCase("mixtral-32-s-base", 8),
		recordedCase("llama-32-aux", 8), recordedCase("llama-24-aux-other", 8), recordedCase("llama-32-s-base", 8),
	},
}

// rival returns a placing of the experts that simulated runs assume.
func rival(name, about string, r rule) dynamic.NamedPlacing {
	return dynamic.NamedPlacing{Name: name, About: about, New: func(c config.Config) dynamic.Placing {
		w := recorded(c).(simulatedExperts)
		return newPlacing(r, w.placing.experts, w.placing.replicas, 1, w.block)
	}}
}

// contestShare is the share of a block's seconds in its experts.
const contestShare = 0.7

func madeUpCase(name string, experts, replicas int, most float64) dynamic.ContestCase {
	return dynamic.ContestCase{
		Name: fmt.Sprintf("%s, %d experts", name, experts), Replicas: replicas, Share: contestShare, Most: most,
		Set: []string{"simulate.routing=" + name, fmt.Sprint("simulate.experts=", experts), fmt.Sprint("simulate.expert_ranks=", replicas)},
	}
}

func recordedCase(name string, replicas int) dynamic.ContestCase {
	return dynamic.ContestCase{
		Name: name, Replicas: replicas, Share: contestShare, Most: 1 / 0.95,
		Set: []string{"simulate.routing=" + name, fmt.Sprint("simulate.expert_ranks=", replicas)},
	}
}
