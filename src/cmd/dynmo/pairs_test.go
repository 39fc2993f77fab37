package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/random"
)

// unusual are settings beside the defaults. Settings that only have a meaning together are one
// entry.
var unusual = []string{
	"dynamic.kind=prune prune.select=gather", "dynamic.kind=prune prune.structure=block32", "dynamic.kind=prune prune.structure=2:4",
	"dynamic.kind=prune prune.csr_from=0.5 prune.final=0.95", "dynamic.kind=freeze freeze.when=step freeze.step=1 freeze.layers=3",
	"dynamic.kind=freeze freeze.start=0 freeze.every=1 freeze.reference=1 freeze.average=1 freeze.window=1",
	"model.family=llama dynamic.kind=moe moe.balance=s-base", "model.family=llama dynamic.kind=moe moe.capacity=1.5",
	"model.family=llama dynamic.kind=moe moe.router=mlp moe.scale=4", "model.family=llama dynamic.kind=moe model.grain=expert moe.groups=4",
	"dynamic.kind=moe parallel.experts=spread", "dynamic.kind=attention attention.buckets=4", "dynamic.kind=mod mod.route=predictor",
	"dynamic.kind=mod mod.capacity=1", "dynamic.kind=exit exit.propagate=true", "dynamic.kind=exit exit.share=0.5 exit.start=1",
	"dynamic.kind=exit exit.confidence=softmax", "dynamic.kind=prune+exit", "dynamic.kind=exit+mod", "dynamic.kind=attention+mod",
	"dynamic.kind=layerdrop layerdrop.gamma=1", "dynamic.kind=moe+layerdrop", "dynamic.kind=prune+exit+layerdrop layerdrop.theta=0.1",
	"model.family=llama", "model.key_value_heads=1", "model.grain=half", "model.head_shards=3", "model.tied=false", "parallel.replicas=2",
	"parallel.microbatches=3", "mesh.order=replica-major", "schedule.kind=gpipe", "schedule.kind=interleaved", "schedule.kind=zb-h2",
	"schedule.kind=zb-v", "schedule.kind=list schedule.in_flight=1", "schedule.kind=auto", "optimizer.clip=0", "balance.kind=diffusion",
	"balance.kind=uniform", "balance.kind=param balance.by=param", "balance.every=1", "balance.memory_limit_bytes=1000",
	"repack.kind=sustain repack.unit=node", "repack.kind=first-fit repack.stages=2 balance.memory_limit_bytes=100000000",
	"repack.kind=sustain repack.microbatches=adapt", "repack.kind=sustain elastic.release=exit", "repack.kind=sustain elastic.release=slurm",
	"repack.kind=sustain elastic.release=restart", "checkpoint.every=1", "train.validate_every=1 data.validation=0.1", "train.on_nan=skip",
	"device.threads=2 run.clock=wall", "device.kernel=ref", "run.clock=virtual", "device.kernel=null",
}

// TestSettingsInPairs: two unusual settings train together, or are refused before a run directory
// is made. A refusal has status 2 and a line for each wrong setting. DYNMO_LONG=1 tries all pairs;
// else the test tries some.
func TestSettingsInPairs(t *testing.T) {
	skipUnderShort(t)
	dir := folder(t, "")
	t.Chdir(dir)
	tries := 60
	if os.Getenv("DYNMO_LONG") != "" {
		tries = len(unusual) * (len(unusual) - 1) / 2
	}
	trained := 0
	for i, draw := 0, random.Keyed(28, 8); i < tries; i++ {
		a := draw.IntN(len(unusual))
		b := (a + 1 + draw.IntN(len(unusual)-1)) % len(unusual)
		pair := append(sets("train.steps=3", "model.hidden=16", "prune.start=1", "prune.every=1", "prune.times=1"),
			sets(strings.Fields(unusual[a]+" "+unusual[b])...)...)
		e := says(training(append(pair, "--run-dir", "run")...)...)
		_, err := os.Stat("run")
		lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
		unclear := slices.ContainsFunc(lines, func(line string) bool { return !strings.HasPrefix(line, "dynmo: ") })
		switch {
		case e.status == exitDone:
			trained++
		case e.status != exitUsage || unclear || len(lines) > 3 || err == nil:
			t.Errorf("%s and %s: status %d, run directory: %v: %s", unusual[a], unusual[b], e.status, err == nil, e.stderr)
		default:
			t.Logf("%s and %s: %s", unusual[a], unusual[b], e.stderr)
		}
		if err := os.RemoveAll("run"); err != nil {
			t.Fatal(err)
		}
	}
	if trained < tries/4 {
		t.Errorf("%d of %d pairs train", trained, tries)
	}
}
