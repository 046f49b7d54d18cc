// A plugin of the first day of version 1.0: its tables end before some of today's functions. Built with headers/first.
#define PLUGIN_ID "older"
#define OLDEST PACELINE_ABI_VERSION(1, 0)
#define OLDEST_TEXT "1.0"
#define BUILT PACELINE_ABI_VERSION(1, 0)
#define BUILT_TEXT "1.0"

#include "add_backend.hpp"
