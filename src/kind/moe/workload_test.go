package moe

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/dynamic/dynamictest"
	"dynmo/src/expect"
	"dynmo/src/kind/moe/routing"
)

// TestRecordedExperts: every recording that settings may name is there.
func TestRecordedExperts(t *testing.T) {
	for _, name := range routing.Recordings() {
		c, err := config.Load("", []string{"simulate.routing=" + name})
		expect.OK(t, err)
		if w := recorded(c).(simulatedExperts); w.recording.Name != name || w.placing.replicas != 8 {
			t.Errorf("%s: %d ranks of %s", name, w.placing.replicas, w.recording.Name)
		}
	}
	_, err := config.Load("", []string{"simulate.routing=mine"})
	names := append(routing.Recordings(), routing.MadeUpNames()...)
	if last := len(names) - 1; err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf(`wanted "%s" or "%s"`, strings.Join(names[:last], `", "`), names[last])) {
		t.Error(err)
	}
}

// TestWorkloadAssumes: the fullest rank sets the time of a layer.
func TestWorkloadAssumes(t *testing.T) {
	c := dynamictest.Chain(t, 8, dynamic.MadeUp{Steps: 100, Every: 1, Microbatches: 4, Attention: 1.0 / 7})
	experts, err := routing.New(routing.Recording{Experts: 4, Top: 1, Blocks: 8, Slots: 4, Replicas: 1, Tokens: 6})
	expect.OK(t, err)
	for slot := range experts.Slots {
		copy(experts.Loads(2, slot), []uint16{3, 1, 1, 1})
	}
	for ranks, want := range map[int]float64{1: 1, 2: 1 + c.Blocks[3].MLP/3} { // on two ranks 4 of 6 tokens, where 3 are equal
		w := simulatedExperts{recording: experts, placing: newPlacing(placeEven, 4, ranks, 0, 1)}
		if got := w.Costs(c, 5).Scale[3][2]; math.Abs(got-want) > 1e-12 {
			t.Errorf("%d ranks: %v, want %v", ranks, got, want)
		}
	}
}
