package layout

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/piece"
	"dynmo/src/schedule"
)

func legal(t *testing.T, kind schedule.Kind, stages, chunks, microbatches int) schedule.Schedule {
	t.Helper()
	s, err := schedule.New(kind, stages, chunks, microbatches)
	expect.OK(t, err)
	return s
}

func TestJSON(t *testing.T) {
	list := schedule.List(schedule.ListOptions{
		Costs:        []cost.Stage{{Forward: 1, Input: 2, Weight: 1}, {Forward: 2, Input: 1, Weight: 0.5}},
		Microbatches: 5, InFlight: []int{2, 2},
	})
	for _, l := range []Layout{
		New(partition.Partition{0, 3, 4, 6}, legal(t, schedule.Kind1F1B, 3, 1, 7), 2, StageMajor),
		New(partition.Partition{0, 1, 2, 3, 9}, legal(t, schedule.KindZBV, 2, 2, 4), 1, ReplicaMajor),
		New(partition.Partition{0, 1, 2, 3, 4, 5, 9}, legal(t, schedule.KindInterleaved, 2, 3, 4), 3, StageMajor),
		New(partition.Partition{0, 4, 9}, list, 1, StageMajor),
		{Mesh: Mesh{Stages: 2, Replicas: 2, Order: StageMajor}, Cuts: partition.Partition{0, 2, 3}, Schedule: legal(t, schedule.Kind1F1B, 2, 1, 2), Ranks: []int{0, 7, 3, 4}},
	} {
		expect.OK(t, l.Check(l.Cuts.Layers()))
		b, err := json.Marshal(l)
		expect.OK(t, err)
		var got Layout
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := cmp.Diff(l, got); diff != "" || !l.Equal(got) {
			t.Errorf("%s\n%s", b, diff)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no cuts", `{"stages":1,"replicas":1,"microbatches":1}`, "cuts: none"},
		{"no stages", `{"cuts":[0,2],"replicas":1,"microbatches":1}`, "stages: 0, want a divisor of the 1 virtual stages"},
		{"no replicas", `{"cuts":[0,2],"stages":1,"replicas":0,"microbatches":1}`, "replicas: 0"},
		{"no microbatches", `{"cuts":[0,2],"stages":1,"replicas":1}`, "microbatches: 0"},
		{"endless replicas", `{"cuts":[0,2],"stages":1,"replicas":1000000000,"microbatches":1}`, "replicas: 1000000000, want at least 1 and at most 524288 ranks in all"},
		{"endless schedule", `{"cuts":[` + strings.Repeat("0,", 100) + `0],"stages":100,"replicas":1,"microbatches":100000}`,
			"microbatches: 100000 on 100 virtual stages, want at most 4194304 on all together"},
		{"endless microbatches", `{"cuts":[0,2],"stages":1,"replicas":1,"microbatches":1000000000}`, "microbatches: 1000000000"},
		{"falling cuts", `{"cuts":[0,2,1],"stages":2,"replicas":1,"microbatches":1}`, "cuts: partition [0 2 1] gives stage 1 -1 layers"},
		{"kind", `{"cuts":[0,2],"stages":1,"replicas":1,"microbatches":1,"schedule":"best"}`, `schedule "best" does not follow`},
		{"chunks", `{"cuts":[0,1,2],"stages":1,"replicas":1,"microbatches":1,"schedule":"1f1b"}`, "2 chunks on a stage, want 1"},
		{"few ranks", `{"cuts":[0,2],"stages":1,"replicas":2,"microbatches":1,"schedule":"1f1b","ranks":[0]}`, "ranks: 1, want 2: one for each of 1 stages and 2 replicas"},
		{"first rank", `{"cuts":[0,2],"stages":1,"replicas":2,"microbatches":1,"schedule":"1f1b","ranks":[1,0]}`, "ranks: 1 is the first, want rank 0"},
		{"rank twice", `{"cuts":[0,2],"stages":1,"replicas":3,"microbatches":1,"schedule":"1f1b","ranks":[0,4,4]}`, "ranks: 4 is there twice"},
		{"negative rank", `{"cuts":[0,2],"stages":1,"replicas":2,"microbatches":1,"schedule":"1f1b","ranks":[0,-1]}`, "ranks: -1, want 0 to 524287"},
		{"endless rank", `{"cuts":[0,2],"stages":1,"replicas":2,"microbatches":1,"schedule":"1f1b","ranks":[0,1000000]}`, "ranks: 1000000, want 0 to 524287"},
		{"order", `{"cuts":[0,2],"stages":1,"replicas":1,"microbatches":1,"schedule":"list","order":["B0 F0"]}`, "out of order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Layout
			if err := json.Unmarshal([]byte(c.text), &l); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	s := legal(t, schedule.Kind1F1B, 2, 1, 2)
	for _, c := range []struct {
		name, want string
		l          Layout
	}{
		{"empty stage", "gives stage 1 0 layers", New(partition.Partition{0, 3, 3}, s, 1, StageMajor)},
		{"other chain", "does not cover layers 0 to 3", New(partition.Partition{0, 1, 2}, s, 1, StageMajor)},
		{"other mesh", "mesh of 3 stages", Layout{Mesh: Mesh{Stages: 3, Replicas: 1}, Cuts: partition.Partition{0, 1, 3}, Schedule: s}},
		{"other ranks", "ranks: 1, want 2", Layout{Mesh: Mesh{Stages: 2, Replicas: 1}, Cuts: partition.Partition{0, 1, 3}, Schedule: s, Ranks: []int{0}}},
	} {
		if err := c.l.Check(3); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.want)
		}
	}
}

// TestPiecesInOldFiles: layouts in checkpoints and records have the pieces as one text, as they had
// before the pieces were a type.
func TestPiecesInOldFiles(t *testing.T) {
	const old = `{"stages":2,"replicas":2,"mesh":"stage-major","cuts":[0,2,4],"schedule":"1f1b","microbatches":4,"pieces":"0*2 1*2;0+1 0 1*2"}`
	var l Layout
	expect.OK(t, json.Unmarshal([]byte(old), &l))
	if want := piece.New([]piece.Map{{{0}, {0}, {1}, {1}}, {{0, 1}, {0}, {1}, {1}}}); !l.Pieces.Equal(want) {
		t.Errorf("pieces %v, want %v", l.Pieces, want)
	}
	text, err := json.Marshal(l)
	expect.OK(t, err)
	if string(text) != old {
		t.Errorf("written as\n%s, was\n%s", text, old)
	}
	l.Pieces = piece.Assignment{}
	text, err = json.Marshal(l)
	expect.OK(t, err)
	if strings.Contains(string(text), "pieces") {
		t.Errorf("the initial assignment is written: %s", text)
	}
	err = json.Unmarshal([]byte(strings.Replace(old, "0+1 ", "0+ ", 1)), &l)
	if err == nil || !strings.Contains(err.Error(), `pieces of block 1: "0+"`) {
		t.Errorf("bad pieces: %v", err)
	}
}
