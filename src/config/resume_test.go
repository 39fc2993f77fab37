package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestResume(t *testing.T) {
	for _, c := range []struct {
		name       string
		was, is    string // words between blanks, each as --set takes it
		changed    string
		refused    string
		moreOfFile string // behind the checkpoint's settings
	}{
		{name: "the same"},
		{name: "another model", is: "model.hidden=256 model.tied=false run.seed=7",
			refused: "config: run.seed: 1 in the checkpoint, 7 here: may not change on resume\n" +
				"config: model.hidden: 128 in the checkpoint, 256 here: may not change on resume\n" +
				"config: model.tied: true in the checkpoint, false here: may not change on resume"},
		{name: "another place", was: "parallel.stages=4", is: "parallel.stages=2 schedule.kind=zb-h1 balance.kind=diffusion",
			changed: "parallel.stages: 4 in the checkpoint, 2 here\n" +
				"schedule.kind: \"1f1b\" in the checkpoint, \"zb-h1\" here\n" +
				"balance.kind: \"partition\" in the checkpoint, \"diffusion\" here"},
		{name: "longer", is: "train.steps=200",
			changed: "train.steps: 100 in the checkpoint, 200 here: the remaining learning rates are those of a run of the new length"},
		{name: "the same samples", was: "parallel.replicas=2", is: "parallel.microbatches=8",
			changed: "parallel.replicas: 2 in the checkpoint, 1 here: sums over replicas are added in another order, losses agree up to rounding\n" +
				"parallel.microbatches: 4 in the checkpoint, 8 here"},
		{name: "other samples", was: "parallel.replicas=2",
			changed: "parallel.replicas: 2 in the checkpoint, 1 here: sums over replicas are added in another order, losses agree up to rounding",
			refused: "config: parallel.replicas x parallel.microbatches: 2 x 4 in the checkpoint, 1 x 4 here: the product may not change on resume, steps would have other samples"},
		{name: "as many sequences, drawn otherwise", was: "parallel.microbatch_size=4 parallel.microbatches=2",
			changed: "parallel.microbatches: 2 in the checkpoint, 4 here",
			refused: "config: parallel.microbatch_size: 4 in the checkpoint, 2 here: may not change on resume\n" +
				"config: parallel.replicas x parallel.microbatches: 1 x 2 in the checkpoint, 1 x 4 here: the product may not change on resume, steps would have other samples"},
		{name: "no effect", was: "prune.final=0.5 device.precision=f32", is: "freeze.layers=3 simulate.head=2"},
		{name: "no effect there", was: "device.precision=f32", is: "device.kind=cuda",
			changed: "device.kind: \"cpu\" in the checkpoint, \"cuda\" here: losses agree up to rounding"},
		{name: "other arithmetic", was: "device.kind=cuda device.precision=f32", is: "device.kind=cuda",
			refused: "config: device.precision: \"f32\" in the checkpoint, \"bf16\" here: may not change on resume"},
		{name: "another version", moreOfFile: "[gone]\nx = 1\n", changed: "gone.x: in the checkpoint, unknown here"},
	} {
		t.Run(c.name, func(t *testing.T) {
			was, err := Load("", strings.Fields(c.was))
			if err != nil {
				t.Fatal(err)
			}
			is, err := Load("", strings.Fields(c.is))
			if err != nil {
				t.Fatal(err)
			}
			was, unknown, err := Parse("manifest.json", []byte(was.TOML()+c.moreOfFile))
			if err != nil {
				t.Fatal(err)
			}
			changed, err := is.Resume(was, unknown)
			refused := ""
			if err != nil {
				refused = err.Error()
			}
			if got := strings.Join(changed, "\n"); got != c.changed || refused != c.refused {
				t.Errorf("changed:\n%s\nwant:\n%s\nrefused:\n%s\nwant:\n%s", got, c.changed, refused, c.refused)
			}
		})
	}
	c := Default()
	if _, err := c.Resume(Default(), nil); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v", err)
	}
}
