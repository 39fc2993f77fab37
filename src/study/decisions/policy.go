package decisions

import (
	"dynmo/src/config"
	"dynmo/src/plan"
)

// Policy is a way to decide.
type Policy struct {
	Name      string
	Estimates bool // from all steps since the model changed
	New       func(*plan.Planner, config.Config) (plan.Balancer, error)
}

// present is the policy that trains.
var present = Policy{"new", true, func(p *plan.Planner, _ config.Config) (plan.Balancer, error) {
	return plan.NewBalancer(p, plan.BalancerOptions{})
}}

// Policies are the one that trains and the one that it is compared with.
var Policies = []Policy{{"old", false, newNewest}, present}
