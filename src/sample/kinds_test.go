package sample_test

import _ "dynmo/src/kind" // the settings need the tables of every kind
