package launch

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/random"
)

// algorithms are settings that choose how a kind of dynamism works, beside the settings in chosen.
// The first entry of a kind is its usual form. A form may need a grain, or that replicas share
// experts out.
var algorithms = map[string][]string{
	"prune": {
		"prune.csr_from=0.7", "prune.csr_from=1 prune.select=gather", "prune.structure=block32 prune.csr_from=0.7", "prune.structure=2:4 prune.final=0.5 prune.select=gather",
	},
	"freeze": {"freeze.when=step", "freeze.when=plasticity"},
	"moe": {
		"", "moe.balance=s-base moe.router=mlp", "moe.router=mlp moe.scale=3 moe.z=0.1", "moe.capacity=0.7", "moe.top=6 moe.intermediate=0", "model.grain=expert moe.groups=3",
		"model.grain=expert moe.groups=2 moe.balance=s-base", "parallel.experts=spread", "parallel.experts=spread moe.capacity=0.7 moe.balance=s-base",
		"parallel.experts=spread moe.block_rows=5", "parallel.experts=spread moe.block_rows=5 moe.spare=2 moe.placing=copies",
		"parallel.experts=spread moe.block_rows=5 moe.spare=2 moe.placing=eplb", "parallel.experts=spread moe.block_rows=1 moe.spare=1 moe.placing=owners",
	},
	"attention": {"attention.keys=shared", "attention.keys=own", "attention.keys=own attention.buckets=1"},
	"exit": {
		"exit.confidence=classifier", "exit.confidence=saturation", "exit.confidence=softmax", "exit.propagate=true", "exit.confidence=saturation exit.propagate=true",
		"exit.confidence=softmax exit.propagate=true", "exit.train=weighted exit.share=0 exit.label=target", "exit.train=weighted exit.share=0 exit.stage2=3",
		"exit.train=weighted exit.share=0 exit.confidence=saturation", "exit.train=weighted exit.share=0 exit.confidence=softmax",
		"exit.share=0 exit.stage2=3 exit.label=agree", "exit.share=0 exit.threshold=-1 exit.probe=0", "exit.after=1,2,3 exit.weight=0",
	},
	"mod":       {"mod.route=predictor", "mod.route=topk", "mod.route=topk mod.gate=one mod.auxiliary=0", "mod.route=predictor mod.gate=one"},
	"layerdrop": {""},
}

// combined is the model of TestKindsInSets. Its matrices have whole blocks of 32 x 32 weights.
const combined = `parallel.stages=1 parallel.replicas=1 parallel.microbatches=3 model.blocks=4 model.hidden=32 model.heads=2 model.sequence=8 model.vocab=256 train.steps=6
	prune.every=1 prune.times=3 exit.until=3 moe.experts=6 moe.top=2 moe.intermediate=32 train.validate_every=3 train.validate_sequences=3 `

// others is the number of sets for each that the test tries, without DYNMO_LONG=1, beside the usual ones.
const others = 100

// set is some kinds, each in one of its forms, in a family.
type set struct {
	kinds []string
	sets  string
	usual bool // every kind has its usual form
}

// everySet returns every set of one to three kinds in every form, in every family.
func everySet(t *testing.T) (list []set) {
	var extend func(s set, kinds []string)
	extend = func(s set, kinds []string) {
		if len(s.kinds) > 0 {
			list = append(list, s)
		}
		for i, kind := range kinds {
			if len(s.kinds) == 3 {
				return
			}
			if algorithms[kind] == nil {
				t.Fatalf("algorithms has no entry for the kind %q", kind)
			}
			for k, form := range algorithms[kind] {
				extend(set{slices.Concat(s.kinds, []string{kind}), s.sets + form + " ", s.usual && k == 0}, kinds[i+1:])
			}
		}
	}
	kinds := valuesOf("dynamic.kind")
	for _, family := range valuesOf("model.family") {
		extend(set{sets: "model.family=" + family + " ", usual: true}, slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return kind == "none" }))
	}
	return list
}

// valuesOf returns the values that a setting can have.
func valuesOf(setting string) (list []string) {
	for _, c := range config.Complete(setting + "=") {
		list = append(list, strings.TrimPrefix(c.Text, setting+"="))
	}
	return list
}

// TestKindsInSets: up to three kinds together, each in each of its forms, are refused by settings of
// theirs, or train. Two stages whose layers move then have the bits of one stage. With DYNMO_LONG=1
// the test tries every set, otherwise the sets of usual forms and some others.
func TestKindsInSets(t *testing.T) {
	skipUnlessC(t)
	trained, refused, text, draw := 0, 0, corpus(t), random.Keyed(12, 3)
	for i, s := range everySet(t) {
		if !long && draw.IntN(others) > 0 && !(s.usual && len(s.kinds) < 3) {
			continue
		}
		sets := combined + "dynamic.kind=" + strings.Join(s.kinds, "+") + " " + s.sets
		c, err := load(text, chosen, sets)
		if err != nil {
			refused++
			for line := range strings.Lines(err.Error()) {
				if !slices.ContainsFunc(append(s.kinds, "dynamic.kind"), func(name string) bool { return strings.Contains(line, name) }) {
					t.Errorf("%s: refused by none of its settings: %s", sets, line)
				}
			}
			continue
		}
		trained++
		one, two := session{}, session{balancer: scattered(uint64(i))}
		if err := one.try(t, c); err != nil {
			t.Errorf("%s: on one stage: %v", sets, err)
			continue
		}
		c.Parallel.Stages = 2
		if err := two.try(t, c); err != nil {
			t.Errorf("%s: on two stages: %v", sets, err)
			continue
		}
		got, want := two.watch.base(), one.watch.base()
		if at := got.difference(want); at != "" || !slices.Equal(got.frozen, want.frozen) || got.moves == 0 {
			t.Errorf("%s: two stages, with %d moves, differ from one at %q; frozen %q and %q", sets, got.moves, at, got.frozen, want.frozen)
		}
	}
	t.Logf("%d sets trained with equal bits, %d refused", trained, refused)
}
