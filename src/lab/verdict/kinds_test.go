package verdict_test

import _ "dynmo/src/kind" // settings have the tables of every kind
