// A plugin of version 1.7, which still talks to hosts of 1.0. Built with headers/later.
#define PLUGIN_ID "newer"
#define OLDEST PACELINE_ABI_VERSION(1, 0)
#define OLDEST_TEXT "1.0"
#define BUILT PACELINE_ABI_VERSION(1, 7)
#define BUILT_TEXT "1.7"

#include "add_backend.hpp"
