package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fixed names the settings that may not change when a run goes on from a checkpoint: with
// others it would be another model, of other samples, or other arithmetic between them.
const fixed = `
run.seed
model.blocks model.hidden model.heads model.sequence model.vocab model.tied model.grain model.head_shards model.init model.weights
model.family model.key_value_heads model.intermediate model.norm_eps
model.rope_base model.rope_scaling model.rope_factor model.rope_low_freq_factor model.rope_high_freq_factor model.rope_original_max_position_embeddings
data.extensions data.limit_bytes data.validation
parallel.microbatch_size
optimizer.lr optimizer.min_lr optimizer.warmup optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.decay optimizer.clip
dynamic.kind
prune.start prune.every prune.times prune.initial prune.final prune.structure prune.csr_from
freeze.when freeze.start freeze.every freeze.reference freeze.average freeze.window freeze.tolerance freeze.thaw
freeze.layers freeze.step
attention.buckets
moe.experts moe.top moe.intermediate moe.router moe.scale moe.balance moe.aux moe.z moe.capacity moe.groups
mod.capacity mod.route mod.threshold mod.gate mod.auxiliary
exit.after exit.from exit.confidence exit.threshold exit.share exit.start exit.until exit.probe exit.weight exit.propagate
device.precision`

// free names the settings that may change on resume: where layers are, in which order
// and on what they are worked on, how long the run is, and what is told of it.
// parallel.replicas and parallel.microbatches may change if their product does not:
// samples are drawn by step and microbatch of all replicas. So may data.path, for the text
// that lies there has to have the hash of the checkpoint's.
const free = `
run.name run.clock run.trace_steps
data.path
parallel.stages parallel.replicas parallel.microbatches parallel.experts
mesh.order
schedule.kind schedule.chunks schedule.in_flight schedule.file
train.steps train.on_nan train.nan_limit train.log_every train.hash train.validate_every train.validate_sequences train.stopped_is_success
prune.select prune.crossing
simulate.head simulate.attention simulate.routing simulate.expert_ranks simulate.density_least simulate.density_most
simulate.density_noise simulate.exit_from simulate.exit_share simulate.exit_noise simulate.frozen simulate.thaws simulate.mod_tokens simulate.mod_noise
simulate.measure_times simulate.decide_times simulate.move_delay_most
balance.kind balance.by balance.every balance.regex balance.layout balance.memory_limit_bytes balance.gaps balance.gamma balance.max_rounds
repack.kind repack.tolerance repack.unit repack.stages repack.below repack.microbatches
elastic.release elastic.leave elastic.retry_seconds
checkpoint.every checkpoint.minutes checkpoint.mtti checkpoint.keep
device.kind device.kernel device.threads device.graphs device.tune device.share
comm.start_seconds comm.stall_seconds comm.deadline_seconds comm.latency_seconds comm.bandwidth_bytes comm.carrier comm.nccl_ctas comm.delay_most`

// effects says what a change of a free setting does to losses. The others do nothing.
var effects = map[string]string{
	"data.path":           "the text is the same",
	"parallel.replicas":   "sums over replicas are added in another order, losses agree but for rounding",
	"parallel.experts":    "losses agree but for rounding",
	"train.steps":         "learning rates of the steps to come are those of a run of the new length",
	"repack.microbatches": "losses agree but for rounding once microbatches are others",
	"device.kind":         "losses agree but for rounding",
	"device.kernel":       "losses agree but for rounding",
}

// Resume returns a line for each setting that differs from those of a checkpoint, of which
// unknown names others that this version does not know. The error joins a line for each
// that may not differ. A setting that has no effect, there or here, may.
func (c Config) Resume(was Config, unknown []string) (changed []string, err error) {
	for _, key := range unknown {
		changed = append(changed, key+": in the checkpoint, unknown here")
	}
	here, there := settings(&c), settings(&was)
	may := strings.Fields(free)
	var refused []error
	for i, s := range here {
		if reflect.DeepEqual(s.value.Interface(), there[i].value.Interface()) || s.only() == "simulate" {
			continue
		}
		_, silentHere := s.silencer(here)
		_, silentThere := there[i].silencer(there)
		if silentHere || silentThere {
			continue
		}
		line := fmt.Sprintf("%s: %s in the checkpoint, %s here", s.name(), shown(there[i].text()), shown(s.text()))
		switch effect := effects[s.name()]; {
		case !slices.Contains(may, s.name()):
			refused = append(refused, fmt.Errorf("config: %s: may not change on resume", line))
		case effect != "":
			changed = append(changed, line+": "+effect)
		default:
			changed = append(changed, line)
		}
	}
	if p, q := was.Parallel, c.Parallel; p.Replicas*p.Microbatches != q.Replicas*q.Microbatches {
		refused = append(refused, fmt.Errorf("config: parallel.replicas x parallel.microbatches: %d x %d in the checkpoint, %d x %d here: the product may not change on resume, steps would have other samples",
			p.Replicas, p.Microbatches, q.Replicas, q.Microbatches))
	}
	return changed, errors.Join(refused...)
}
