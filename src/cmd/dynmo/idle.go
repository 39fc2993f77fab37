package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/lab/study"
	"dynmo/src/plan/search"
	"dynmo/src/trace"
)

// idleWords names the parts of a bubble ratio by cause.
func idleWords(i trace.Idle) string {
	all := i.Makespan()
	return fmt.Sprintf("inherent %s, imbalance %s, memory %s, communication %s",
		ratio(i.Inherent/all), ratio(i.Imbalance/all), ratio(i.Memory/all), ratio(i.Communication/all))
}

// ratio formats a number around 1.
func ratio(x float64) string {
	text := fmt.Sprintf("%.3f", x)
	if text == "-0.000" {
		return "0.000"
	}
	return text
}

// duration formats seconds with four digits, in a suitable unit.
func duration(seconds float64) string {
	if seconds == 0 {
		return "0 s"
	}
	x, unit := seconds, "s"
	for _, smaller := range []string{"ms", "µs", "ns"} {
		if math.Abs(x) >= 1 {
			break
		}
		x, unit = 1e3*x, smaller
	}
	decimals := 3
	for top := math.Abs(x); top >= 9.9995 && decimals > 0; top /= 10 {
		decimals--
	}
	return strconv.FormatFloat(x, 'f', decimals, 64) + " " + unit
}

// megabytes formats bytes in units of 10⁶.
func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// mean returns the mean of numbers.
func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// fromTo formats a range of count numbers from first on: "3 to 7".
func fromTo(first, count int) string {
	if count == 1 {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d to %d", first, first+count-1)
}

// ranges formats ascending numbers as ranges: "0 to 3, 7".
func ranges(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j] == list[j-1]+1 {
			j++
		}
		parts = append(parts, fromTo(list[i], j-i))
		i = j
	}
	return strings.Join(parts, ", ")
}

// alike is the largest relative deviation from their mean for which seconds of stages count as
// equal.
const alike = 0.05

// paperBubble returns the paper's equation (1) for the totals of a plan. It returns nil unless the
// equation's assumptions hold: an even number of equal stages with one chunk each, and as many
// microbatches as stages.
func paperBubble(a search.Plan, o study.Options) *float64 {
	m := a.Schedule.Map
	if m.Chunks > 1 || m.Stages%2 != 0 || m.Stages != a.Schedule.Microbatches {
		return nil
	}
	var forward, backward, seconds []float64
	for _, c := range a.Costs {
		forward, backward = append(forward, c.Forward), append(backward, c.Input+c.Weight)
		seconds = append(seconds, c.Seconds())
	}
	if all := mean(seconds); slices.Max(seconds) > all*(1+alike) || slices.Min(seconds) < all*(1-alike) {
		return nil
	}
	bubble := study.PaperBubble(m.Stages, mean(forward), mean(backward), o.Network.Node.Seconds(a.Messages[0]))
	return &bubble
}
