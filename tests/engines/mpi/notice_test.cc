// What another rank tells of its failure, as it is shown here.
#include "engines/mpi/notice.h"

#include <gtest/gtest.h>

namespace lockstep::mpi {
namespace {

TEST(Notice, TheTextOfACauseIsMadePrintable) {
  Notice notice;
  notice.set_cause({ErrorKind::peer_lost,
                    Code::unavailable,
                    "gone \x1b[2J\n[lockstep 12:00:00.000 error] forged",
                    {1, 2}});
  EXPECT_EQ(notice.cause(),
            Status(ErrorKind::peer_lost, Code::unavailable,
                   "gone \\x1b[2J\n  [lockstep 12:00:00.000 error] forged", {1, 2}));
}

}  // namespace
}  // namespace lockstep::mpi
