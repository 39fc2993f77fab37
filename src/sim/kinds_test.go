package sim_test

import _ "dynmo/src/kind" // models need the families
