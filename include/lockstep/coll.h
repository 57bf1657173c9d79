// The collectives of lockstep, all of them; no torch.
#pragma once

#include "lockstep/coll/batch.h"
#include "lockstep/coll/session.h"
#include "lockstep/coll/threads.h"
#include "lockstep/log.h"
