package weights_test

import _ "dynmo/src/kind" // models have the families
