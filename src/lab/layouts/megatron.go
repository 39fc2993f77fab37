package layouts

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Symbols of Megatron-LM's layouts.
const (
	embedding = 'E'
	block     = 't'
	mtp       = 'm' // a layer of multi-token prediction
	loss      = 'L' // the head with the loss
)

// mostSymbols bounds the symbols of a layout: a hundred times those of the deepest models.
const mostSymbols = 1 << 16

var (
	groups  = regexp.MustCompile(`\(([^)]+)\)\*(\d+)`)
	symbols = regexp.MustCompile(`(.)\*(\d+)`)
)

// ParseMegatron reads the text of Megatron-LM's option pipeline-model-parallel-layout, for example
// "Et*3|(tt|)*29,m|L", as Megatron-LM's own parser does. It returns the symbols of every virtual
// stage, in the order of a microbatch's forward; a stage may have none.
//
// Commas are left out. A group in parentheses with *n behind it is repeated first, then a symbol with
// *n. A repetition of zero leaves nothing. Groups do not nest, and parentheses without * are an error,
// as are blanks. Source: Megatron-LM d98e8a64, pipeline_parallel_layer_layout.py, parse_str_to_list.
func ParseMegatron(text string) ([]string, error) {
	plain := strings.ReplaceAll(text, ",", "")
	for _, pattern := range []*regexp.Regexp{groups, symbols} {
		var err error
		if plain, err = unroll(plain, pattern); err != nil {
			return nil, err
		}
	}
	stages := strings.Split(plain, "|")
	for v, stage := range stages {
		for _, r := range stage {
			if !strings.ContainsRune("EtmL", r) {
				return nil, fmt.Errorf("stage %d is %.100q: %q, want E, t, m, L, or a group (…)*n that has no group inside", v, stage, r)
			}
		}
	}
	return stages, nil
}

// unroll writes each repetition in full.
func unroll(text string, pattern *regexp.Regexp) (string, error) {
	var b strings.Builder
	end := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[end:at[0]])
		end = at[1]
		unit := text[at[2]:at[3]]
		n, err := strconv.Atoi(text[at[4]:at[5]])
		if err != nil || n > mostSymbols || b.Len()+n*len(unit) > mostSymbols {
			return "", fmt.Errorf("%.100s makes more than %d symbols", text[at[0]:at[1]], mostSymbols)
		}
		b.WriteString(strings.Repeat(unit, n))
	}
	b.WriteString(text[end:])
	if b.Len() > mostSymbols {
		return "", fmt.Errorf("more than %d symbols", mostSymbols)
	}
	return b.String(), nil
}

// CheckMegatron returns the error that Megatron-LM would give for the virtual stages of a layout on a
// number of pipeline stages, for a model of `blocks` blocks and `mtps` layers of multi-token prediction.
// Source: Megatron-LM d98e8a64, pipeline_parallel_layer_layout.py, validate_layer_layout.
func CheckMegatron(virtual []string, stages, blocks, mtps int) error {
	if len(virtual)%stages != 0 {
		return fmt.Errorf("%d virtual stages, want a multiple of the %d stages", len(virtual), stages)
	}
	flat := strings.Join(virtual, "")
	count := func(r rune) int { return strings.Count(flat, string(r)) }
	switch {
	case flat == "" || flat[0] != embedding:
		return errors.New("the first layer is no E, want E first")
	case flat[len(flat)-1] != loss:
		return errors.New("the last layer is no L, want L last")
	case count(embedding) != 1 || count(loss) != 1:
		return fmt.Errorf("%d E and %d L, want one of each", count(embedding), count(loss))
	case count(block) != blocks:
		return fmt.Errorf("%d t, want %d, one for each block", count(block), blocks)
	case count(mtp) != mtps:
		return fmt.Errorf("%d m, want %d, one for each layer of multi-token prediction", count(mtp), mtps)
	case mtps > 0 && strings.LastIndexByte(flat, block) > strings.IndexByte(flat, mtp):
		return errors.New("a t behind an m, want every t before the m")
	}
	if mtps == 0 {
		return nil
	}
	first := slices.IndexFunc(virtual, func(s string) bool { return strings.ContainsRune(s, mtp) })
	switch {
	case first < len(virtual)-stages:
		return fmt.Errorf("m is in virtual stage %d, want it in the last chunk of a stage: from %d on", first, len(virtual)-stages)
	case strings.Count(virtual[first], string(mtp)) != mtps:
		return fmt.Errorf("stage %d has %d of %d m, want all in one stage", first, strings.Count(virtual[first], string(mtp)), mtps)
	}
	return nil
}

// shortMegatron writes virtual stages as a short text that ParseMegatron reads.
func shortMegatron(virtual []string) string {
	short := make([]string, len(virtual))
	for v, stage := range virtual {
		short[v] = shorten(stage)
	}
	var b strings.Builder
	for v := 0; v < len(short); {
		run := 1
		for v+run < len(short) && short[v+run] == short[v] {
			run++
		}
		last := v+run == len(short)
		if last {
			run-- // nothing ends the last stage
		}
		if group := fmt.Sprintf("(%s|)*%d", short[v], run); run > 1 && len(group) < run*(len(short[v])+1) {
			b.WriteString(group)
		} else {
			b.WriteString(strings.Repeat(short[v]+"|", run))
		}
		if v += run; last {
			b.WriteString(short[v])
			v++
		}
	}
	return b.String()
}

// shorten writes runs of more than three equal symbols with *.
func shorten(stage string) string {
	var b strings.Builder
	for i := 0; i < len(stage); {
		n := len(stage[i:]) - len(strings.TrimLeft(stage[i:], stage[i:i+1]))
		if n > 3 {
			fmt.Fprintf(&b, "%c*%d", stage[i], n)
		} else {
			b.WriteString(stage[i : i+n])
		}
		i += n
	}
	return b.String()
}
