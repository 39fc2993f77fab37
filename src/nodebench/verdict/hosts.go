package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Expand returns the names in one of Slurm's host lists, such as "gpu[001-004,7],login1".
func Expand(list string) ([]string, error) {
	var names []string
	for _, item := range splitOutside(list) {
		expanded, err := expand(item)
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", list, err)
		}
		names = append(names, expanded...)
	}
	return names, nil
}

// mostHosts bounds the names in a range of a host list. A longer range is a typing error.
const mostHosts = 1 << 16

// splitOutside splits a list at the commas outside brackets.
func splitOutside(list string) []string {
	var items []string
	depth, begin := 0, 0
	for i, c := range list {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth <= 0 {
				items, begin = append(items, list[begin:i]), i+1
			}
		}
	}
	return slices.DeleteFunc(append(items, list[begin:]), func(item string) bool { return item == "" })
}

// expand expands the first brackets of a name, then the rest.
func expand(item string) ([]string, error) {
	prefix, rest, found := strings.Cut(item, "[")
	if !found {
		if strings.Contains(item, "]") {
			return nil, fmt.Errorf("%s: a bracket is missing", item)
		}
		return []string{item}, nil
	}
	ranges, suffix, closed := strings.Cut(rest, "]")
	if !closed {
		return nil, fmt.Errorf("%s: a bracket is missing", item)
	}
	tails, err := expand(suffix)
	if err != nil {
		return nil, err
	}
	var names []string
	for part := range strings.SplitSeq(ranges, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, wrong := strconv.Atoi(first)
		to, wrong2 := strconv.Atoi(last)
		if err := cmp.Or(wrong, wrong2); err != nil || from < 0 || to < from || to-from >= mostHosts {
			return nil, fmt.Errorf("[%s]: want numbers, or ranges of at most %d", part, mostHosts)
		}
		for n := from; n <= to; n++ {
			for _, tail := range tails {
				names = append(names, fmt.Sprintf("%s%0*d%s", prefix, len(first), n, tail))
			}
		}
	}
	return names, nil
}

// Leaves returns the leaf switch of each node in Slurm's topology.conf.
func Leaves(topology string) (map[string]string, error) {
	leaf := map[string]string{}
	for line := range strings.Lines(topology) {
		line, _, _ = strings.Cut(line, "#")
		var name, nodes string
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			switch strings.ToLower(key) {
			case "switchname":
				name = value
			case "nodes":
				nodes = value
			}
		}
		list, err := Expand(nodes)
		if err != nil {
			return nil, fmt.Errorf("switch %s: %w", name, err)
		}
		for _, node := range list {
			leaf[node] = name
		}
	}
	return leaf, nil
}
