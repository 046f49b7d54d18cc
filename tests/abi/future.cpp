// A plugin of another major version, with which this host has nothing in common. Built with headers/later.
#define PLUGIN_ID "future"
#define OLDEST PACELINE_ABI_VERSION(2, 0)
#define OLDEST_TEXT "2.0"
#define BUILT PACELINE_ABI_VERSION(2, 3)
#define BUILT_TEXT "2.3"

#include "add_backend.hpp"
