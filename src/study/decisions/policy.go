package decisions

import (
	"dynmo/src/config"
	"dynmo/src/plan/policy"
	"dynmo/src/plan/search"
)

// Policy is a way to decide.
type Policy struct {
	Name      string
	Estimates bool // from all steps since the model changed
	New       func(*search.Planner, config.Config) (policy.Balancer, error)
}

// present is the policy that trains.
var present = Policy{"new", true, func(p *search.Planner, _ config.Config) (policy.Balancer, error) {
	return policy.New(p, policy.Options{})
}}

// Policies are the one that trains and the one that it is compared with.
var Policies = []Policy{{"old", false, newNewest}, present}
