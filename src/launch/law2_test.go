package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/plan/policy"
	"dynmo/src/record"
	"dynmo/src/store"
	"dynmo/src/train"
)

// part is a part of a run: where it is kept, where it goes on from, and after how many
// steps it is asked to end, 0 if at its own end.
type part struct {
	dir, from string
	stop      int

	balanced bool                   // by the settings' balancer
	balancer func() policy.Balancer // of each rank; nil: by the settings, or layers are scattered
	resumed  train.Resumed          // what it went on from
}

// trainPart trains a part of a run, layers scattered anew after every step.
func trainPart(t *testing.T, c config.Config, p part) (*run, train.Outcome) {
	t.Helper()
	return p.train(t, c)
}

// train trains a part of a run with a goroutine for each rank.
func (p *part) train(t *testing.T, c config.Config) (*run, train.Outcome) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	out := &run{}
	var end train.Outcome
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		var r *rank
		r, err := newRank(c, tr, Hooks{
			Stop:   func() bool { return p.stop > 0 && tr.Rank() == 0 && r != nil && len(out.losses) >= p.stop-1 },
			Begin:  func(World) (record.Observer, error) { return out, nil },
			Resume: p.from, RunDir: func() string { return p.dir },
		}, func() (*data.Corpus, error) { return corpus, nil })
		if err != nil {
			return err
		}
		defer r.Close()
		if p.balancer != nil {
			r.Balancer = p.balancer()
		} else if !p.balanced {
			r.Balancer = &script{next: scatter(uint64(c.Parallel.Stages))}
		}
		if tr.Rank() == 0 {
			p.resumed = r.Resumed()
		}
		o, err := r.Loop()
		if tr.Rank() == 0 {
			end, out.hash = o, o.Hash
		}
		return err
	})
	expect.OK(t, err)
	return out, end
}

// TestLaw2: a run that was saved, ended and went on from there on other stages has the
// losses, the norms and the final hash of one that never ended, pruned layers and moved
// ones too.
func TestLaw2(t *testing.T) {
	expect.NewFault(t, "F22", "")
	c := small(t)
	c.Parallel.Stages = 4
	whole := goRun(t, c, nil)
	for _, at := range []int{1, 5, 9} { // dense, masked, CSR
		saved := part{dir: t.TempDir(), stop: at}
		first, end := trainPart(t, c, saved)
		if end.Steps != at || !end.Stopped || end.Saved != at {
			t.Fatalf("asked to end after step %d: %+v", at, end)
		}
		for _, stages := range []int{1, 2, 3, 4, 6} {
			if stages != 2 && at == 1 && !long {
				continue
			}
			t.Run(fmt.Sprintf("step %d, %d stages", at, stages), func(t *testing.T) {
				c := c
				c.Parallel.Stages = stages
				c.Schedule.Kind = []string{"1f1b", "zb-h1", "zb-v", "gpipe"}[stages%4]
				if c.Schedule.Kind == "zb-v" && 2*stages > c.Layers() {
					c.Schedule.Kind = "1f1b"
				}
				then, end := trainPart(t, c, part{from: saved.dir})
				if at := joined(first, then).difference(whole); at != "" || end.Steps != c.Train.Steps {
					t.Errorf("differs from an undisturbed run at %s (%d steps)", at, end.Steps)
				}
			})
		}
	}
}

// joined returns two parts of a run as one.
func joined(first, then *run) *run {
	return &run{losses: slices.Concat(first.losses, then.losses), norms: slices.Concat(first.norms, then.norms), hash: then.hash}
}

// TestResumeGoesOnBalancing: where a run goes on as it was, measurements and the balancer
// go on too; where they cannot, it says why. Its numbers are the same either way.
func TestResumeGoesOnBalancing(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Train.Steps = 3, 12
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 7, balanced: true}
	first, _ := saved.train(t, c)
	for want, change := range map[string]func(*config.Config){
		"":                                     func(c *config.Config) { c.Train.LogEvery++ },
		"[parallel] of the checkpoint differs": func(c *config.Config) { c.Parallel.Stages = 2 },
		"[balance] of the checkpoint differs":  func(c *config.Config) { c.Balance.Every = "3" },
	} {
		c := c
		change(&c)
		then := part{from: saved.dir, balanced: true}
		second, _ := then.train(t, c)
		if at := joined(first, second).difference(whole); at != "" || then.resumed.Step != 7 || then.resumed.Anew != want {
			t.Errorf("differs at %q, resumed %+v, want %q", at, then.resumed, want)
		}
	}
	scripted := part{from: saved.dir, dir: t.TempDir()}
	if _, end := scripted.train(t, c); end.Saved != 12 {
		t.Errorf("%+v", end)
	}
	then := part{from: scripted.dir, balanced: true}
	c.Train.Steps++
	if then.train(t, c); then.resumed.Anew != `the checkpoint's state: parts: ["profiler"], want ["balancer" "profiler"]` {
		t.Errorf("after a run of another balancer: %+v", then.resumed)
	}
}

// TestLaw2Replicas: on another number of replicas with the same global batch a run goes
// on with the same samples.
func TestLaw2Replicas(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Parallel.Replicas, c.Parallel.Microbatches = 2, 2, 4
	saved := part{dir: t.TempDir(), stop: 5}
	_, end := trainPart(t, c, saved)
	if end.Saved != 5 {
		t.Fatalf("%+v", end)
	}
	c.Train.Steps = 7
	var first float64
	for _, replicas := range []int{2, 1, 4} {
		c.Parallel.Replicas, c.Parallel.Microbatches = replicas, 8/replicas
		then, _ := trainPart(t, c, part{from: saved.dir})
		if replicas == 2 {
			first = float64(then.losses[0])
		}
		if off := math.Abs(float64(then.losses[0])/first - 1); !(off < 1e-5) {
			t.Errorf("%d replicas: first loss %v, want %v", replicas, then.losses[0], first)
		}
	}
}

// TestResumeSkipsDamage: what cannot be read is passed over with the reason, by every
// rank; a run without any checkpoint begins anew; one with damaged ones only does not.
func TestResumeSkipsDamage(t *testing.T) {
	expect.NewFault(t, "F06", "")
	c := small(t)
	c.Parallel.Stages, c.Checkpoint.Every, c.Train.Steps, c.Checkpoint.Keep = 3, "2", 7, 9
	dir := t.TempDir()
	whole, end := trainPart(t, c, part{dir: dir})
	if end.Saved != 7 {
		t.Fatalf("%+v", end)
	}
	all, _, err := store.All(dir)
	expect.OK(t, err)
	if len(all) < 3 {
		t.Fatalf("%d checkpoints of 7 steps, one every 2", len(all))
	}
	for i, c := range all[:2] {
		path := filepath.Join(c.Dir, fmt.Sprintf("layer-%05d.safetensors", 3*i))
		text, err := os.ReadFile(path)
		expect.OK(t, err)
		text[len(text)-1] ^= 1
		expect.OK(t, os.WriteFile(path, text, 0o600))
	}
	then, _ := trainPart(t, c, part{from: dir})
	if then.hash != whole.hash || len(then.losses) != 7-all[2].Step {
		t.Errorf("went on for %d steps to hash %s, want %d and %s", len(then.losses), then.hash, 7-all[2].Step, whole.hash)
	}
	anew, _ := trainPart(t, c, part{from: t.TempDir()})
	if anew.hash != whole.hash || len(anew.losses) != 7 {
		t.Errorf("without a checkpoint: %d steps, hash %s", len(anew.losses), anew.hash)
	}
	other := c
	other.Model.Blocks--
	refused(t, other, dir, "model.blocks: 8 in the checkpoint, 7 here")
	for _, c := range all {
		expect.OK(t, os.WriteFile(filepath.Join(c.Dir, store.ManifestFile), nil, 0o600))
	}
	refused(t, c, dir, "no whole checkpoint")
}

// refused wants a run that cannot go on from a directory to say so.
func refused(t *testing.T, c config.Config, dir, want string) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	err = local.Run(c.Parallel.Stages, func(tr comm.Transport) error {
		_, err := newRank(c, tr, Hooks{Stop: func() bool { return false }, Resume: dir}, func() (*data.Corpus, error) { return corpus, nil })
		return err
	})
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
