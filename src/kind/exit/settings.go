package exit

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"dynmo/src/config"
)

// options is early exit: behind chosen blocks tokens leave (Schuster et al. 2022; paper, section 2.2).
type options struct {
	After      string  `toml:"after" shape:"true" default:"auto" doc:"numbers of blocks behind which tokens may leave, ascending: \"3,6,9\"; auto: every quarter of the blocks, from exit.from on"`
	From       float64 `toml:"from" shape:"true" default:"0.25" min:"0" below:"1" doc:"share of the blocks before the first exit, where exit.after is auto"`
	Confidence string  `toml:"confidence" shape:"true" default:"classifier" oneof:"classifier,saturation,softmax" doc:"confidence that lets a token leave: classifier is a linear classifier of its state; saturation is the cosine between its states behind and in front of the last block, which then stays one layer; softmax is its largest probability, which computes the head for every token"`
	Train      string  `toml:"train" shape:"true" default:"leave" oneof:"leave,weighted" doc:"leave: in training, too, tokens leave at an exit and have their loss there, so that loads vary; weighted: every token goes through all blocks and has a loss at each exit and at the end, weighted by the number of blocks before it; this is CALM's training (Schuster et al. 2022): loads do not vary"`
	Label      string  `toml:"label" resume:"classifiers learn by other labels from here on" default:"agree" oneof:"agree,target" doc:"what a classifier learns to foretell. agree: whether the exit's likeliest token is the last layer's, as CALM's does; all tokens must reach the last layer for it, so while they leave in training (exit.train = leave, before exit.stage2) it is as target. target: whether the exit's likeliest token is the one that follows"`
	Stage2     int     `toml:"stage2" resume:"classifiers learn alone from another step on" default:"0" min:"0" unit:"steps" doc:"step from which on everything except the classifiers of exits is frozen, as in CALM's second stage; with exit.label = agree no token leaves from then on; 0: nothing ever is"`
	Threshold  float64 `toml:"threshold" default:"0.9" min:"-1" max:"2" doc:"confidence above which a token leaves, from 0 to 1, for saturation from -1; without effect where exit.share is above 0"`
	Share      float64 `toml:"share" default:"0" min:"0" below:"1" doc:"share of the tokens that leave before the last block in the end: thresholds follow it; 0 leaves them as they are"`
	Start      int     `toml:"start" default:"100" min:"0" unit:"steps" doc:"step from which on the share rises, as a straight line; none leaves before it"`
	Until      int     `toml:"until" default:"1000" min:"0" unit:"steps" doc:"step from which on the share is exit.share"`
	Probe      float64 `toml:"probe" default:"0.0625" min:"0" max:"1" doc:"share of the tokens that go on whose loss is computed at the exit too, so that it learns of them"`
	Weight     float64 `toml:"weight" default:"0.3" min:"0" max:"1000" doc:"weight of those losses in the gradient; 0 computes none"`
	Propagate  bool    `toml:"propagate" default:"false" doc:"whether the state of a token that has left goes on: later blocks compute keys and values of it, for the others, and nothing else; all tokens then cross boundaries, and not beside mod"`
}

// Depths returns the number of blocks before each exit in a chain of the given number of blocks,
// ascending, with commas between them; "" if there are no exits.
func (e options) Depths(blocks int) string {
	if e.After != "auto" {
		return strings.ReplaceAll(e.After, " ", "")
	}
	var list []string
	for quarter := range 4 {
		depth := int(math.Round((e.From + float64(quarter)/4) * float64(blocks)))
		if text := strconv.Itoa(depth); depth > 0 && depth < blocks && (list == nil || list[len(list)-1] != text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, ",")
}

// Agrees reports whether classifiers learn from the last layer, at once or in the second stage.
func (e options) Agrees() bool {
	return e.Label == "agree" && e.Confidence == classifier && (e.Train == "weighted" || e.Stage2 > 0)
}

// Count returns the number of exits in a chain of the given number of blocks.
func (e options) Count(blocks int) int {
	depths := e.Depths(blocks)
	if depths == "" {
		return 0
	}
	return 1 + strings.Count(depths, ",")
}

// simulated is what a simulated run assumes.
type simulated struct {
	From  float64 `toml:"exit_from" default:"0.25" min:"0" max:"1" when:"dynamic.kind=exit" doc:"share of the blocks before the first exit"`
	Share float64 `toml:"exit_share" default:"0.8" min:"0" max:"1" when:"dynamic.kind=exit" doc:"share of the tokens that have left before the last block by the end of the run"`
	Noise float64 `toml:"exit_noise" default:"0.19" min:"0" max:"10" when:"dynamic.kind=exit" doc:"relative deviation, by step and microbatch, of the equal parts that leave at the exits; that of small runs whose thresholds followed a share (results/exit-shares.txt)"`
}

// settings is what config knows of early exit.
var settings = config.Kind{
	Name: "exit", Structural: true, Subset: true,
	Tables: []config.Table{
		{Name: "exit", Tag: `only:"train" when:"dynamic.kind=exit" doc:"tokens leave behind chosen blocks (Schuster et al. 2022)"`, Place: 6, Settings: options{}},
		{Name: "simulate", Place: 3, Settings: simulated{}},
	},
	Check:   check,
	Remarks: remarks,
	Shape: func(c config.Config, s *config.Shape) {
		e := config.Of[options](c)
		s.Added += e.Count(c.Model.Blocks)
		if e.Confidence == "saturation" {
			s.Whole += e.Count(c.Model.Blocks) // the blocks in front of exits
		}
	},
}

func check(c config.Config, rule config.Rule) {
	if !c.Dynamic.Has("exit") {
		return
	}
	e, mod := config.Of[options](c), c.Dynamic.Has("mod")
	rule(e.check(c.Model.Blocks) != "", e.check(c.Model.Blocks), "exit.after exit.from model.blocks")
	rule(mod && e.Confidence == "saturation", "classifier or softmax beside mod: routed blocks do not keep what entered them", "exit.confidence dynamic.kind")
	rule(mod && e.Propagate, "exit.propagate = false beside mod: routed blocks do not tell tokens that have left from others", "exit.propagate dynamic.kind")
	rule(e.Train == "weighted" && (e.Share > 0 || e.Propagate), `exit.share = 0 and exit.propagate = false beside exit.train = "weighted", by which no token leaves`, "exit.train exit.share exit.propagate")
	rule(e.Stage2 > 0 && e.Confidence != "classifier", `exit.confidence = "classifier" beside exit.stage2: nothing else would be trained`, "exit.stage2 exit.confidence")
	rule(e.Agrees() && c.Model.HeadShards > 1, `model.head_shards = 1 beside exit.label = "agree": no slice of the head knows the likeliest token`, "exit.label model.head_shards")
	rule(e.Stage2 > 0 && e.Share > 0, "exit.share = 0 beside exit.stage2: thresholds do not follow a share while classifiers are trained", "exit.stage2 exit.share")
	rule(e.Stage2 > 0 && c.Dynamic.Has("freeze"), "exit.stage2 = 0 beside freeze, which thaws layers", "exit.stage2 dynamic.kind")
	rule(e.Share > 0 && e.Until < e.Start, "exit.until to be at least exit.start", "exit.until exit.start")
}

// check returns the requirement that the depths violate in a chain of the given number of blocks;
// "" if they are right.
func (e options) check(blocks int) string {
	if blocks < 2 {
		return "at least 2 blocks: tokens leave between two"
	}
	last, depths := 0, e.Depths(blocks)
	if e.After == "auto" && depths == "" {
		return "a smaller exit.from: no block is left between the first exit and the last block"
	}
	for text := range strings.SplitSeq(depths, ",") {
		depth, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(depth) != text || depth <= last || depth >= blocks {
			return fmt.Sprintf("\"auto\", or ascending numbers of blocks from 1 to %d with commas between them", blocks-1)
		}
		last = depth
	}
	return ""
}

// remarks returns a sentence for each setting that has no effect beside others, and for each by
// which no token leaves, or every one.
func remarks(c config.Config) (list []string) {
	e, standard := config.Of[options](c), config.Of[options](config.Default())
	if e.Share > 0 && e.Start >= c.Train.Steps {
		list = append(list, fmt.Sprintf("exit.share = %v has no effect: exit.start = %d is not below train.steps = %d", e.Share, e.Start, c.Train.Steps))
	}
	switch {
	case e.Train == "weighted":
		list = append(list, `exit changes no layer's cost: by exit.train = "weighted" every token goes through all blocks`)
	case !e.Propagate:
		list = append(list, "tokens that leave at an exit are no keys in later blocks: those that go on do not attend to them there (exit.propagate = true keeps their keys and values)")
	}
	if e.Train == "leave" && e.Share == 0 && e.Threshold == standard.Threshold && c.Dynamic.Replay == "" {
		list = append(list, fmt.Sprintf("a token leaves only where its confidence is above exit.threshold = %v: in %d steps it may be that none does. exit.share, exit.start and exit.until let a share of the tokens leave", e.Threshold, c.Train.Steps))
	}
	if e.Stage2 >= c.Train.Steps {
		list = append(list, fmt.Sprintf("exit.stage2 = %d has no effect: it is not below train.steps = %d", e.Stage2, c.Train.Steps))
	}
	if c.Model.Weights != "" {
		list = append(list, fmt.Sprintf("model.weights = %q has nothing for exits: what these learn begins as without a file", c.Model.Weights))
	}
	weighted, inWeighted := e.Train == "weighted", `has no effect while exit.train = "weighted"`
	for _, c := range []struct {
		holds, set bool // set: to another value than the default
		key        string
		value      any
		what       string
	}{
		{e.After != "auto", e.From != standard.From, "from", e.From, fmt.Sprintf("has no effect while exit.after = %q", e.After)},
		{e.Weight == 0 && !weighted, e.Probe != standard.Probe, "probe", e.Probe, "has no effect while exit.weight = 0"},
		{e.Share > 0, e.Threshold != standard.Threshold, "threshold", e.Threshold, fmt.Sprintf("has no effect while exit.share = %v", e.Share)},
		{e.Confidence != classifier, e.Label != standard.Label, "label", e.Label, fmt.Sprintf("has no effect while exit.confidence = %q", e.Confidence)},
		{weighted, e.Threshold != standard.Threshold, "threshold", e.Threshold, inWeighted},
		{weighted, e.Probe != standard.Probe, "probe", e.Probe, inWeighted},
		{weighted, e.Weight != standard.Weight, "weight", e.Weight, inWeighted},
		{e.Share == 0, e.Start != standard.Start, "start", e.Start, "has no effect while exit.share = 0"},
		{e.Share == 0, e.Until != standard.Until, "until", e.Until, "has no effect while exit.share = 0"},
		{e.Share == 0 && !weighted, e.Threshold >= 1, "threshold", e.Threshold, "lets no token leave: no confidence is above 1"},
		{e.Share == 0 && !weighted && e.Confidence != "saturation", e.Threshold < 0, "threshold", e.Threshold,
			"lets every token leave at the first exit: no confidence is below 0"},
		{e.Share == 0 && !weighted && e.Confidence != "saturation", e.Threshold == 0, "threshold", e.Threshold,
			"lets every token leave at the first exit: every confidence is above 0"},
	} {
		if c.holds && c.set {
			list = append(list, fmt.Sprintf("exit.%s = %v %s", c.key, c.value, c.what))
		}
	}
	return list
}
