package exit

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// plainLoss returns the loss of CALM in scalar code, after t5x contrib/calm, models.py (cc342d4).
// The loss is the mean of the losses behind the exits and at the end, weighted by depth (lines 472
// to 510). classifiers is the classifiers' loss, with balanced classes (lines 285 to 317). A
// classifier predicts whether the exit's likeliest token is the last layer's, or else the target.
// States enter classifiers as constants.
func plainLoss(ch *modeltest.Chain) (all *modeltest.Plain, loss, classifiers modeltest.Scalar) {
	c := ch.S.Config
	kind := model.KindOf[Exits](c)
	depths := kind.Depths()
	behind := make(map[int][][]modeltest.Scalar)
	p, last := modeltest.PlainOf(ch, func(p *modeltest.Plain) {
		p.Behind = func(block int, x [][]modeltest.Scalar) { behind[block] = append(behind[block], slices.Clone(x)...) }
	})
	likeliest := func(logits []modeltest.Scalar) int {
		best := 0
		for i, x := range logits {
			if x.X > logits[best].X {
				best = i
			}
		}
		return best
	}
	sum := float64(c.Blocks)
	for _, depth := range depths {
		sum += float64(depth)
	}
	weighted := func(x modeltest.Scalar, weight float64) modeltest.Scalar { return p.Map(x, weight*x.X, weight) }
	loss, classifiers = weighted(p.Loss(last, ch.Targets), float64(c.Blocks)/sum), p.Put(0, nil, nil)
	for k, depth := range depths {
		at := []string{"exit.0/", "exit.1/"}[k]
		states := behind[depth-1]
		var logits, verdicts [][]modeltest.Scalar
		var labels []int
		positive := 0
		for t, x := range states {
			y := p.Product(at+"head.weight", p.Norm(at+"norm.weight", x))
			logits = append(logits, y)
			constant := make([]modeltest.Scalar, len(x))
			for i := range x {
				constant[i] = p.Put(x[i].X, nil, nil)
			}
			verdict := p.Product(at+"classifier.weight", constant)
			for i, b := range p.Rows(at+"classifier.bias", 1) {
				verdict[i] = p.Add(verdict[i], b[0])
			}
			verdicts = append(verdicts, verdict)
			right, label := int(ch.Targets[t]), 0
			if kind.Agree {
				right = likeliest(last[t])
			}
			if likeliest(y) == right {
				label = 1
			}
			labels, positive = append(labels, label), positive+label
		}
		loss = p.Add(loss, weighted(p.Loss(logits, ch.Targets), float64(depth)/sum))
		n := float64(len(states))
		for t, verdict := range verdicts {
			balance := 1 - float64(positive)/n
			if labels[t] == 0 {
				balance = 1 - (n-float64(positive))/n
			}
			probability := p.Softmax(verdict)[labels[t]]
			classifiers = p.Add(classifiers, p.Map(probability, -balance*math.Log(probability.X)/n, -balance/probability.X/n))
		}
	}
	return p, loss, classifiers
}

// TestWeightedIsCALM: over 20 steps of gradient descent losses and gradients are those of CALM,
// number by number. The loss that is reported is the last layer's.
func TestWeightedIsCALM(t *testing.T) {
	for _, agree := range []bool{true, false} {
		t.Run(fmt.Sprintf("agree=%v", agree), func(t *testing.T) { weightedIsCALM(t, agree) })
	}
}

func weightedIsCALM(t *testing.T, agree bool) {
	c := modeltest.SmallLlama
	c.Blocks = 3
	c = c.With(Exits{After: "1,2", Confidence: classifier, Threshold: 0.1, Weighted: true, Agree: agree})
	ch := modeltest.New(t, c, tensor.F64)
	modeltest.Enlarge(ch.S)
	labelled := 0.0
	for step := range 20 {
		ch.Gradients()
		p, loss, classifiers := plainLoss(ch)
		last, exits := ch.Loss()*model.KindOf[Exits](c).HeadWeight(c), 0.0
		for i, l := range ch.S.Layers {
			if e, is := l.Parts[0].(*exit); is {
				for _, label := range ch.Work[i].(*departure).found[:ch.X.N()] {
					labelled += float64(label)
				}
				probes, _ := untold(ch, i)
				exits += probes * ch.X.Scale
				if got := ch.Batches[i].Leaves().Tokens; got != ch.X.N() || e.weight == 0 {
					t.Fatalf("%d tokens go on", got)
				}
			}
		}
		if got := last + exits; math.Abs(got-loss.X) > 1e-10 {
			t.Fatalf("step %d: loss %v, plainly %v", step, got, loss.X)
		}
		modeltest.EqualGradients(t, ch, p, p.Derivatives(p.Add(loss, classifiers)))
		ch.Descend(0.05)
	}
	if all := float64(20 * 2 * ch.X.N()); labelled == 0 || labelled == all {
		t.Errorf("%v of %v labels are 1", labelled, all)
	}
}

// TestStage2: from its step on only classifiers are trained, whatever rank their layers are on.
func TestStage2(t *testing.T) {
	ch := newChain(t, exiting(classifier, 0.5), tensor.F32)
	s := &stage2{step: 7}
	for step, trained := range []int{6: -1, 7: 4, 8: 4} {
		change, err := s.Before(step, dynamic.Target{Stage: ch.S})
		if err != nil || change.Structure != (step == 7) {
			t.Errorf("step %d: %+v, %v", step, change, err)
		}
		if step < 7 {
			continue
		}
		count := 0
		for _, l := range ch.S.Layers {
			for _, p := range l.Params() {
				if !p.Frozen {
					count++
				}
			}
		}
		if count != trained {
			t.Errorf("%d parameters are trained, want %d: a matrix and a bias of each exit", count, trained)
		}
	}
}

// TestSecondStageKeepsTokens: with labels of the last layer no token leaves once classifiers are
// trained alone; before it tokens leave, and labels are targets.
func TestSecondStageKeepsTokens(t *testing.T) {
	c := exiting(classifier, -1)
	modeltest.Edit(&c, func(e *Exits) { e.Agree = true })
	ch := newChain(t, c, tensor.F64)
	ch.Gradients()
	first := ch.Work[2].(*departure)
	if first.left != ch.X.N() {
		t.Errorf("%d tokens leave before the second stage, want all", first.left)
	}
	_, err := (&stage2{}).Before(0, dynamic.Target{Stage: ch.S})
	expect.OK(t, err)
	ch.Gradients()
	if first.left != 0 || len(first.rows) != ch.X.N() {
		t.Errorf("%d tokens leave in the second stage, %d have a loss: want none, and all", first.left, len(first.rows))
	}
	for _, p := range ch.S.Layers[2].Params() {
		if moves := slices.ContainsFunc(tensor.Of[float64](p.G), func(x float64) bool { return x != 0 }); moves != p.Apart {
			t.Errorf("%s: a gradient: %v", p.Name, moves)
		}
	}
}
