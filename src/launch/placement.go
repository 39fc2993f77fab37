package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/record"
)

// placement says in one line which ranks are on which host, and on which cores they
// may run: "0-1 on node1 (cores 0-3), 2-3 on node2 (cores 0; 1)". Cores are given for
// each rank where the ranks of a host differ.
func placement(peer func(rank int) comm.Peer, all []arrival) string {
	var hosts []string
	ranks := make(map[string][]int)
	for rank := range all {
		host := peer(rank).Host
		if ranks[host] == nil {
			hosts = append(hosts, host)
		}
		ranks[host] = append(ranks[host], rank)
	}
	parts := make([]string, len(hosts))
	for i, host := range hosts {
		cores := make([]string, len(ranks[host]))
		for j, rank := range ranks[host] {
			cores[j] = ranges(all[rank].Cores)
		}
		if len(slices.Compact(slices.Clone(cores))) == 1 {
			cores = cores[:1]
		}
		parts[i] = fmt.Sprintf("%s on %s (cores %s)", ranges(ranks[host]), host, strings.Join(cores, "; "))
	}
	return strings.Join(parts, ", ")
}

// ranges writes ascending numbers as ranges, "unknown" where there are none.
func ranges(list []int) string { return cmp.Or(record.Ranges(list), "unknown") }
