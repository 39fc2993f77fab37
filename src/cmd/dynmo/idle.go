package main

import (
	"fmt"
	"strconv"
	"strings"

	"dynmo/src/plan"
	"dynmo/src/sim"
	"dynmo/src/trace"
)

// idleAnswer is idle time by cause as commands tell it.
type idleAnswer trace.Idle

// line says what a stage does with its time, in the mean.
func (i idleAnswer) line(busy float64) string {
	text := "busy " + milliseconds(busy)
	for _, part := range []struct {
		name    string
		seconds float64
	}{
		{"inherent", i.Inherent}, {"imbalance", i.Imbalance}, {"memory", i.Memory},
		{"communication", i.Communication}, {"balancing", i.Balancing},
	} {
		text += " + " + part.name + " " + milliseconds(part.seconds)
	}
	return text
}

// milliseconds writes seconds as milliseconds.
func milliseconds(seconds float64) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }

// mean returns the mean of numbers.
func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// stretches writes ascending numbers as ranges: "0 to 3, 7".
func stretches(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		part := strconv.Itoa(list[i])
		if j > i {
			part += " to " + strconv.Itoa(list[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

// paperBubble returns the paper's equation (1) for the totals of a plan.
func paperBubble(a plan.Plan, o plan.Options) float64 {
	forward, backward := 0.0, 0.0
	for _, c := range a.Costs {
		forward += c.Forward
		backward += c.Input + c.Weight
	}
	stages := a.Schedule.Map.Stages
	message := 0.0
	if bytes := a.Messages; len(bytes) > 1 {
		message = o.Network.Node.Seconds(bytes[0])
	}
	return sim.PaperBubble(stages, forward/float64(stages), backward/float64(stages), message)
}
