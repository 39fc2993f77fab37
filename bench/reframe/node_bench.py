# A ReFrame test of a partition's nodes: reframe -c bench/reframe/node_bench.py -r
# `dynmo` is on PATH; the site's settings give systems, partitions and references.
import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class NodeBench(rfm.RunOnlyRegressionTest):
    """All nodes are measured at once; the test fails if one is slow, wrong or faulty, or cannot be judged."""

    valid_systems = ['*']
    valid_prog_environs = ['*']
    executable = 'dynmo'
    executable_opts = ['bench', 'node']
    num_nodes = variable(int, value=2)
    num_tasks_per_node = 1
    time_limit = '10m'

    @run_before('run')
    def set_tasks(self):
        self.num_tasks = self.num_nodes * self.num_tasks_per_node

    @sanity_function
    def no_node_is_bad(self):
        return sn.all([
            sn.assert_found(r'^verdict: (healthy|measured) ', self.stdout),
            sn.assert_not_found(r'^(SLOW|INVALID|FAULTY) ', self.stdout),
        ])

    # A line has verdict, device, check, devices, median, worst, quartiles, unit.
    @run_before('performance')
    def set_figures(self):
        for check, unit in (('gemm_f32', 'GFLOP/s'), ('triad', 'GB/s'), ('csr_f32', 'GFLOP/s')):
            self.perf_variables[check] = sn.make_performance_function(
                sn.extractsingle(rf'^\S+ +host +{check} +\d+ +\S+ +(\S+)', self.stdout, 1, float), unit)
